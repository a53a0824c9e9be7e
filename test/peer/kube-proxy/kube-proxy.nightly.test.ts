import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { join } from "node:path";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, test } from "vitest";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { relay } from "../../cluster/relay.ts";
import { compare, describeDifferences, describePeer } from "./compare.ts";
import { generateState, maxStates } from "./generate-state.ts";
import { runKubeProxy, type SavedRules } from "./kube-proxy.ts";
import { kubeProxyAnswers } from "./kube-proxy-answers.ts";
import { type OurSide, readViews } from "./read-views.ts";
import { knowsZone, writeSentinel } from "./sentinel.ts";
import { viewAnswers } from "./view-answers.ts";
import { watchedNodes } from "./world.ts";
import { writeNodes, writeStates } from "./write-states.ts";

const seed = Number(process.env.KPNG_PEER_SEED ?? randomInt(1, 1_000_000));
const count = Number(process.env.KPNG_PEER_STATES ?? 300);
const again = `KPNG_PEER_SEED=${seed} KPNG_PEER_STATES=${count} npx vitest run test/peer/kube-proxy`;

await describePeer("our view and the rules of kube-proxy", ({ paths }) => {
  const states = Array.from({ length: Math.min(count, maxStates) }, (_, number) => generateState(seed, number));
  let cluster: Cluster;
  let laboratory: Laboratory;
  let ours: OurSide;
  let rules: ReadonlyMap<string, SavedRules>;

  beforeAll(async () => {
    say(`${states.length} states; again: ${again}`);
    cluster = await startCluster({ paths, hasControllers: false });
    laboratory = await Laboratory.open();
    await timed("writing the objects", async () => {
      await writeNodes(cluster.api);
      await writeSentinel(cluster.api);
      await writeStates(cluster.api, states);
    });
    const kubeconfig = cluster.kubeconfig("admin");
    ours = await timed("computing our views", () => readViews(kubeconfig, watchedNodes));
    rules = await timed("kube-proxy has programmed its rules", () => runProxies(kubeconfig));
  }, 240_000);

  afterAll(async () => {
    await laboratory?.close();
    await cluster?.stop();
  });

  async function runProxies(kubeconfig: string): Promise<ReadonlyMap<string, SavedRules>> {
    const apiPort = Number(new URL(cluster.apiServer.url).port);
    const apiSocket = join(laboratory.folder, "api");
    const server = relay(apiSocket, apiPort);
    const common = { laboratory, program: paths["kube-proxy"] ?? "", kubeconfig, apiPort, apiSocket };
    const runs = watchedNodes.map(async (nodeName) => {
      const saved = await runKubeProxy({ ...common, nodeName }, (found) => knowsZone(found, nodeName));
      return [nodeName, saved] as const;
    });
    try {
      return new Map(await Promise.all(runs));
    } finally {
      server.close();
    }
  }

  test.each(watchedNodes)("give the same answers on node %s", async (nodeName) => {
    const services = await cluster.api.list("/api/v1/services");
    const saved = rules.get(nodeName);
    const view = ours.views.get(nodeName);
    assert.ok(saved !== undefined && view !== undefined);
    const sides = { kubeProxy: kubeProxyAnswers(saved, nodeName), ours: viewAnswers([...view.services.values()]) };
    const { counts, differences } = compare(sides, services, nodeName);
    say(`${nodeName}: ${JSON.stringify(counts)}`);
    assert.equal(differences.size, 0, `${describeDifferences(differences, seed, states)}\n\nagain: ${again}`);
    // A fault of the test could make both sides empty.
    for (const [kind, number] of Object.entries(counts)) assert.ok(number > 0, `no question was answered ${kind}`);
  });
});

function say(text: string): void {
  process.stderr.write(`test/peer: ${text}\n`);
}

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const startedMs = performance.now();
  const result = await work();
  say(`${what} (${((performance.now() - startedMs) / 1000).toFixed(1)} s)`);
  return result;
}
