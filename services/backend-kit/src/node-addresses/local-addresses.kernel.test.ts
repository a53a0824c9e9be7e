import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";

const file = new URL("local-addresses.ts", import.meta.url).href;

describePackets("local addresses", () => {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("n1");
  });
  afterAll(() => laboratory.close());

  test("an address of a link without carrier is local, because the kernel answers for it", async () => {
    const address = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip addr add 10.8.0.1/24 dev v0";
    await laboratory.run("n1", ["sh", "-c", `${address} && ip addr add fd08::1/64 dev v0 nodad`]);
    const script = `const { readLocalAddresses: read } = await import("${file}"); console.log(JSON.stringify({ ...read() }))`;
    const printed = await laboratory.run("n1", [process.execPath, "--input-type=module", "-e", script]);
    expect(JSON.parse(printed)).toEqual({ v4: ["10.8.0.1", "127.0.0.1"], v6: expect.arrayContaining(["fd08::1"]) });
    await laboratory.run("n1", ["ping", "-c1", "-W5", "10.8.0.1"]);
  });
});
