import { afterAll, beforeAll, expect, test } from "vitest";
import { checkRules } from "../conformance/check-rules.ts";
import { type KpngProxy, kpngIptables } from "./backend/kpng-proxy.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import type { RunningBackend } from "./backends.ts";
import { checkPackets } from "./check-packets.ts";
import { describeVariants } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { served, servedWays } from "./served-state.ts";
import { Traffic } from "./traffic.ts";

// The steps are those of docs/guides/migrate-from-kube-proxy.md.
describeVariants("a node moves from kube-proxy to kpng-iptables and back", await whyNoKubeProxy(), (variant) => {
  let world: TwoNodes;
  let theirs: RunningBackend;
  let ours: KpngProxy;
  beforeAll(async () => {
    world = await buildTwoNodes(variant);
    theirs = await kubeProxy(world, 20_000);
    ours = await kpngIptables(world, { firstMarkerPort: 30_000 });
  });
  afterAll(async () => {
    await ours?.close();
    await theirs?.close();
    await world?.close();
  });

  /** Returns chains, rules and jumps of one proxy, without counters. */
  async function linesOf(prefix: "KUBE" | "KPNG"): Promise<readonly string[]> {
    const { v4, v6 } = await world.rules();
    const isOne = new RegExp(`(^:|-A |-j )${prefix}`);
    return `${v4}\n${v6}`.split("\n").filter((line) => isOne.test(line));
  }

  async function isBoth(): Promise<void> {
    expect((await linesOf("KUBE")).join("\n")).toContain("-j KUBE-SVC");
    expect((await linesOf("KPNG")).join("\n")).toContain("-j KPNG-SVC");
  }

  test("no packet is lost, rejected or sent to another endpoint at any step", async () => {
    await theirs.start({}, served.state);
    const traffic = await Traffic.start(world, served.state, servedWays);
    const after = async (step: string): Promise<void> => {
      const [moved, wrong] = [await traffic.look(), await checkPackets(world, served, "iptables")];
      const traced = checkRules(await world.rules(), served, "iptables");
      expect({ moved, wrong, traced }, step).toEqual({ moved: [], wrong: [], traced: [] });
    };
    await after("kube-proxy serves");

    await ours.start({}, served.state);
    await isBoth();
    await after("kpng-iptables has started beside kube-proxy");
    await theirs.stop();
    await after("kube-proxy has stopped");
    const before = await linesOf("KPNG");
    const said = await theirs.cleanUp();
    await after(`kube-proxy --cleanup has run: ${said}`);
    expect(await linesOf("KPNG")).toEqual(before);
    // The rule that protects the loopback address also belongs to kubelet, so kube-proxy leaves it.
    expect((await linesOf("KUBE")).filter((line) => !line.includes("KUBE-FIREWALL"))).toEqual([]);

    await theirs.start({}, served.state);
    await isBoth();
    await after("kube-proxy has started beside kpng-iptables");
    await ours.stop();
    // kube-proxy retries a health-check port that was in use at its next sync, after 30 s without changes.
    await theirs.apply(served.state);
    await after("kpng-iptables has stopped");
    await ours.cleanUp();
    await after("kpng-iptables --cleanup has run");
    expect(await linesOf("KPNG")).toEqual([]);

    const { wrong, answeredProbes } = await traffic.end();
    expect(wrong).toEqual([]);
    expect(answeredProbes).toBeGreaterThan(1_000);
  }, 120_000);
});
