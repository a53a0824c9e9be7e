import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "../../../test/kernel/describe-packets.ts";
import { openKubeProxy } from "./read-kube-proxy.ts";
import type { RunCommand } from "./run-command.ts";

describePackets("kube-proxy's rules", () => {
  let laboratory: Laboratory;
  const run: RunCommand = async (command) => ({ kind: "exited", ...(await laboratory.tryRun("node", command)) });
  const read = async (variant: "auto" | "nft" | "legacy", mode: ProxyMode = "iptables") => {
    const readKubeProxy = await openKubeProxy("v4", { mode, variant, timeoutMs: 30_000 }, run);
    return readKubeProxy?.();
  };
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
    const text = "*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n";
    expect(await read("legacy")).toEqual({ mode: "iptables", text });
    expect(await read("auto")).toEqual({ mode: "iptables", text });
  });

  test("are found in either mode, those of the backend's own mode first", async () => {
    await laboratory.run("node", ["nft", "add", "table", "ip", "kube-proxy"]);
    expect(await read("auto")).toMatchObject({ mode: "iptables" });
    expect(await read("auto", "nftables")).toMatchObject({ mode: "nftables" });
    await laboratory.run("node", ["iptables-legacy", "-t", "nat", "-F"]);
    await laboratory.run("node", ["iptables-legacy", "-t", "nat", "-X"]);
    const found = await read("auto");
    expect(found).toMatchObject({ mode: "nftables" });
    expect(found?.text).not.toContain('"handle"');
  });
});
