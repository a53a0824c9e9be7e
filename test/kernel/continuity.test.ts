import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type KpngProxy, kpngIptables } from "./backend/kpng-proxy.ts";
import { checkPackets } from "./check-packets.ts";
import { describeVariants } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { ownRules } from "./rules.ts";
import { served, servedWays } from "./served-state.ts";
import { Traffic } from "./traffic.ts";

// Traffic takes most of two cores, so events take longer.
vi.setConfig({ testTimeout: 120_000 });

/**
 * Time limit for repairs: on a busy machine the interval of drift checks grows, because they use at most 5% of the
 * time.
 */
const repairs = { timeout: 60_000 };

describeVariants("traffic through kpng-iptables continues", undefined, (variant) => {
  let world: TwoNodes;
  let backend: KpngProxy;
  beforeAll(async () => {
    world = await buildTwoNodes(variant);
    backend = await kpngIptables(world, { args: ["--iptables-sync-period", "200ms"] });
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /**
   * Returns our rules without those of the marker, which is a new Service each time.
   */
  async function ourRules(): Promise<readonly string[]> {
    const rules = await ownRules(world, "KPNG-");
    const chains = rules.flatMap((line) => (line.includes("default/marker") ? (/KPNG-SVC-\w+/.exec(line) ?? []) : []));
    return rules.filter((line) => !line.includes("marker") && !chains.some((chain) => line.includes(chain)));
  }

  /** Runs `act` during traffic, and checks that no packet is lost and that the rules are the same afterwards. */
  async function expectUnnoticed(act: () => Promise<void>): Promise<void> {
    await backend.stop();
    await backend.cleanUp();
    await backend.start({}, served.state);
    const before = await ourRules();
    const traffic = await Traffic.start(world, served.state, servedWays);
    await act();
    expect(await checkPackets(world, served, "iptables")).toEqual([]);
    expect(await ourRules()).toEqual(before);
    const { wrong, answeredProbes } = await traffic.end();
    expect(wrong).toEqual([]);
    expect(answeredProbes).toBeGreaterThan(0);
  }

  test("through syncs", () =>
    expectUnnoticed(async () => {
      for (let count = 0; count < 5; count++) await backend.apply(served.state);
    }));

  test("through a restart", () => expectUnnoticed(() => backend.restart("SIGTERM")));

  test("when it is killed and restarted", () => expectUnnoticed(() => backend.restart("SIGKILL")));

  test("through a full resync after a restart of the watcher", () => expectUnnoticed(() => backend.restartWatcher()));

  test("while it repairs rules that were added, changed and deleted by others", () =>
    expectUnnoticed(async () => {
      const before = await ourRules();
      for (const tool of ["iptables", "ip6tables"]) {
        const run = (...words: string[]) => world.laboratory.run("n1", [tool, ...words]);
        const other = tool === "iptables" ? "9.9.9.9" : "2001:db8:9::9";
        await run("-t", "nat", "-A", "KPNG-SERVICES", "-d", other, "-j", "RETURN");
        await run("-R", "KPNG-FORWARD", "1", "-j", "RETURN");
        await run("-D", "FORWARD", "1");
        await run("-t", "nat", "-N", "KPNG-SVC-AAAAAAAAAAAAAAAA");
      }
      expect(await ourRules()).not.toEqual(before);
      await expect.poll(ourRules, repairs).toEqual(before);
    }));
});
