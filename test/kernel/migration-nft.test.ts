import { afterEach, expect, test } from "vitest";
import { type KpngIptables, kpngIptables } from "./backend/kpng-iptables.ts";
import { kpngNft } from "./backend/kpng-nft.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import type { RunningBackend } from "./backends.ts";
import { checkPackets } from "./check-packets.ts";
import { describePackets } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { served, servedWays } from "./served-state.ts";
import { Traffic } from "./traffic.ts";

/** A proxy that a node moves from and back to. */
interface OtherProxy {
  readonly name: string;
  readonly start: (world: TwoNodes) => Promise<RunningBackend | KpngIptables>;
}

const others: readonly OtherProxy[] = [
  { name: "kube-proxy in nftables mode", start: (world) => kubeProxy(world, 20_000, "nftables") },
  { name: "kube-proxy in iptables mode", start: (world) => kubeProxy(world, 20_000) },
  { name: "kpng-iptables", start: (world) => kpngIptables(world, { name: "other", firstMarkerPort: 20_000 }) },
];
const whyNot = await whyNoKubeProxy();

// The steps are those of docs/guides/migrate-from-kube-proxy.md.
describePackets("a node moves to kpng-nft and back", () => {
  let world: TwoNodes | undefined;
  let running: readonly RunningBackend[] = [];
  afterEach(async () => {
    for (const each of running) await each.close();
    await world?.close();
    [running, world] = [[], undefined];
  });

  for (const { name, start } of others) {
    const reason = name === "kpng-iptables" ? undefined : whyNot;
    if (reason !== undefined) {
      test.skipIf(process.env.CI !== "true")(`from ${name} (skipped: ${reason})`, () => expect.fail(reason));
      continue;
    }
    test(`from ${name}: no packet is lost, rejected or sent to another endpoint at any step`, async () => {
      const lab = await buildTwoNodes();
      world = lab;
      const theirs = await start(lab);
      running = [theirs];
      const ours = await kpngNft(lab, { firstMarkerPort: 30_000 });
      running = [theirs, ours];
      await theirs.start({}, served.state);
      const traffic = await Traffic.start(lab, served.state, servedWays);
      const after = async (step: string): Promise<void> => {
        // The kernel lists what is left of either proxy, for the message of a failure.
        const [moved, wrong] = [await traffic.look(), await checkPackets(lab, served, "nft")];
        expect({ moved, wrong }, step).toEqual({ moved: [], wrong: [] });
      };
      const tables = (): Promise<string> => lab.laboratory.run("n1", ["nft", "list", "tables"]);
      await after("the other proxy serves");

      await ours.start({}, served.state);
      expect(await tables()).toContain("table ip kpng\n");
      await after("kpng-nft has started beside it");
      await theirs.stop();
      await after("the other proxy has stopped");
      const said = await theirs.cleanUp();
      await after(`its cleanup has run: ${said}`);

      await theirs.start({}, served.state);
      await after("the other proxy has started beside kpng-nft");
      await ours.stop();
      // kube-proxy retries a health-check port that was in use at its next sync, after 30 s without changes.
      await theirs.apply(served.state);
      await after("kpng-nft has stopped");
      await ours.cleanUp();
      await after("kpng-nft --cleanup has run");
      expect(await tables()).not.toContain("kpng\n");

      const { wrong, answeredProbes } = await traffic.end();
      expect(wrong).toEqual([]);
      expect(answeredProbes).toBeGreaterThan(500);
    }, 120_000);
  }
});
