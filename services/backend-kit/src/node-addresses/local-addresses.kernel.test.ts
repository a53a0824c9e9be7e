import { expect, test } from "vitest";
import { describePackets, useLaboratory } from "../../../../test/kernel/describe-packets.ts";

const file = new URL("local-addresses.ts", import.meta.url).href;

describePackets("local addresses", () => {
  const laboratory = useLaboratory("n1");
  const read = async (node: string) => {
    const script = `const { readLocalAddresses: read } = await import("${file}"); console.log(JSON.stringify({ ...read() }))`;
    return JSON.parse(await laboratory().run(node, [process.execPath, "--input-type=module", "-e", script]));
  };

  test("an address of a link without carrier is local, because the kernel delivers to it", async () => {
    const address = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip addr add 10.8.0.1/24 dev v0";
    await laboratory().run("n1", ["sh", "-c", `${address} && ip addr add fd08::1/64 dev v0 nodad`]);
    expect(await read("n1")).toEqual({ v4: ["10.8.0.1", "127.0.0.1"], v6: expect.arrayContaining(["fd08::1"]) });
    expect(await laboratory().run("n1", ["ip", "route", "get", "10.8.0.1"])).toMatch(/^local 10\.8\.0\.1 dev lo /);
  });

  test.for(["kpngv-0123abcd", "kube-ipvs0"])(
    "addresses of %s, which are those of Services, are left out, unless another interface has them, too",
    async (link) => {
      const node = `node-${link}`;
      await laboratory().add(node);
      const links = `ip link add ${link} type veth peer name s1 && ip link set ${link} up && ip link set s1 up`;
      const own = ["10.9.0.1/32", "10.9.0.2/32", "fd09::1/128 nodad"].map((at) => `ip addr add dev ${link} ${at}`);
      await laboratory().run(node, ["sh", "-ec", [links, ...own, "ip addr add 10.9.0.2/32 dev s1"].join("\n")]);
      const { v4, v6 } = await read(node);
      expect([v4.includes("10.9.0.1"), v4.includes("10.9.0.2"), v6.includes("fd09::1")]).toEqual([false, true, false]);
      expect(v4).toContain("127.0.0.1");
      // The kernel keeps the local routes of a link that is down.
      await laboratory().run(node, ["ip", "link", "set", link, "down"]);
      const down = await read(node);
      expect([down.v4.includes("10.9.0.1"), down.v4.includes("10.9.0.2")]).toEqual([false, true]);
    },
  );
});
