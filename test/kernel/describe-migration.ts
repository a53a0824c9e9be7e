import { checkPackets } from "@kpng/laboratory/check/check-packets.ts";
import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { served, servedWays } from "@kpng/laboratory/check/served-state.ts";
import { Traffic } from "@kpng/laboratory/check/traffic.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { afterEach, expect, test } from "vitest";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { buildVariant, type IptablesVariant } from "./laboratory/legacy-tools.ts";

/** A proxy that a node moves from and back to. */
interface OtherProxy {
  readonly name: string;
  /** Reason why it cannot run here; undefined if it can. */
  readonly whyNot?: string | undefined;
  readonly start: (world: TwoNodes) => Promise<CommandProxy>;
}

/** The proxy that a node moves to. */
interface NewProxy {
  readonly name: string;
  readonly start: (world: TwoNodes) => Promise<CommandProxy>;
  /** Default "nft". */
  readonly variant?: IptablesVariant;
  /** Returns true if something of it is installed on n1. */
  readonly isInstalled: (world: TwoNodes) => Promise<boolean>;
  /** Flows that may move to another endpoint, once, by their lines in a report of `Traffic`. Default: none. */
  readonly mayMove?: RegExp | undefined;
}

const whyNot = await whyNoKubeProxy();

/** kube-proxy in both modes that nodes move from. */
export const kubeProxies: readonly OtherProxy[] = [
  { name: "kube-proxy in nftables mode", whyNot, start: (world) => kubeProxy(world, 20_000, "nftables") },
  { name: "kube-proxy in iptables mode", whyNot, start: (world) => kubeProxy(world, 20_000) },
];

/**
 * Tests that a node moves from each other proxy to a new one and back, by the steps of
 * docs/guides/migrate-from-kube-proxy.md: traffic continues, and each scenario packet is answered after each step.
 */
export function testMigrations(ours: NewProxy, others: readonly OtherProxy[]): void {
  let world: TwoNodes | undefined;
  let running: readonly CommandProxy[] = [];
  afterEach(async () => {
    for (const each of running) await each.close();
    await world?.close();
    [running, world] = [[], undefined];
  });

  const unexpected = (lines: readonly string[]) => lines.filter((line) => ours.mayMove?.test(line) !== true);

  for (const { name, whyNot: reason, start } of others) {
    if (reason !== undefined) {
      test.skipIf(process.env.CI !== "true")(`from ${name} (skipped: ${reason})`, () => expect.fail(reason));
      continue;
    }
    test(`from ${name}: no packet is lost, rejected or sent to another endpoint at any step`, async () => {
      const lab = await buildVariant(ours.variant);
      world = lab;
      const theirs = await start(lab);
      running = [theirs];
      const own = await ours.start(lab);
      running = [theirs, own];
      await theirs.start({}, served.state);
      const traffic = await Traffic.start(lab, served.state, servedWays);
      const after = async (step: string, profile = own.profile): Promise<void> => {
        const [moved, wrong] = [unexpected(await traffic.look()), await checkPackets(lab, served, profile)];
        expect({ moved, wrong }, step).toEqual({ moved: [], wrong: [] });
      };
      await after("the other proxy serves", theirs.profile);

      await own.start({}, served.state);
      expect(await ours.isInstalled(lab)).toBe(true);
      await after(`${ours.name} has started beside it`);
      await theirs.stop();
      await after("the other proxy has stopped");
      const said = await theirs.cleanUp();
      await after(`its cleanup has run: ${said}`);

      await theirs.start({}, served.state);
      await after(`the other proxy has started beside ${ours.name}`);
      await own.stop();
      // kube-proxy retries a health-check port that was in use at its next sync, after 30 s without changes.
      await theirs.apply(served.state);
      await after(`${ours.name} has stopped`);
      await own.cleanUp();
      await after(`${ours.name} --cleanup has run`, theirs.profile);
      expect(await ours.isInstalled(lab)).toBe(false);

      const { wrong, answeredProbes } = await traffic.end();
      expect(unexpected(wrong)).toEqual([]);
      expect(answeredProbes).toBeGreaterThan(500);
    }, 120_000);
  }
}
