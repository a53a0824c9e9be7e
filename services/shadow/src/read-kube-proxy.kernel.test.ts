import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "../../../test/kernel/describe-packets.ts";
import { openKubeProxy, type RunCommand } from "./read-kube-proxy.ts";

describePackets("kube-proxy's rules", () => {
  let laboratory: Laboratory;
  const run: RunCommand = async (command) => ({ kind: "exited", ...(await laboratory.tryRun("node", command)) });
  const read = async (variant: "auto" | "nft" | "legacy") => (await openKubeProxy("v4", variant, 30_000, run))?.();
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("node");
  });
  afterAll(() => laboratory.close());

  test("are found in the variant that its image uses, whatever the node's own iptables is", async () => {
    expect(await read("auto")).toBeUndefined();
    await laboratory.run("node", ["iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES"]);
    await laboratory.run("node", ["iptables-legacy", "-t", "nat", "-A", "OUTPUT", "-j", "KUBE-SERVICES"]);
    expect(await read("nft")).toBeUndefined();
    const found = "*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n";
    expect(await read("legacy")).toBe(found);
    expect(await read("auto")).toBe(found);
  });
});
