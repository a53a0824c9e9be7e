import { randomInt } from "node:crypto";
import { join } from "node:path";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { relay } from "@kpng/laboratory/relay.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { createLog } from "@kpng/process/log.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { followView } from "../../../services/backend-kit/src/receive/follow-view.ts";
import { findBinaries } from "../../cluster/binaries.ts";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { describeWhere } from "../../cluster/describe-where.ts";
import { RunningSource } from "../../cluster/run-source.ts";
import { compare, describeDifferences, planAnswer, rulesAnswer } from "./compare.ts";
import { generateState, maxStates } from "./generate-state.ts";
import { runKubeProxy, type SavedRules } from "./kube-proxy.ts";
import { knowsZone, writeSentinel } from "./sentinel.ts";
import { watchedNodes } from "./world.ts";
import { writeNodes, writeStates } from "./write-states.ts";

const seed = Number(process.env.KPNG_PEER_SEED ?? randomInt(1, 1_000_000));
const count = Number(process.env.KPNG_PEER_STATES ?? 300);
const again = `KPNG_PEER_SEED=${seed} KPNG_PEER_STATES=${count} npx vitest run test/peer/kube-proxy`;

const binaries = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
// kube-proxy sends all rules in one message, whose size is limited for other users to some 900 rules.
const whyNot =
  process.getuid?.() !== 0 ? "root is required" : binaries.kind === "missing" ? binaries.reason : undefined;

describeWhere("the plan from our view, and the rules of kube-proxy", whyNot, () => {
  if (binaries.kind === "missing") return;
  const { paths } = binaries;
  const states = Array.from({ length: Math.min(count, maxStates) }, (_, number) => generateState(seed, number));
  let cluster: Cluster;
  let laboratory: Laboratory;
  let views: ReadonlyMap<string, NodeView>;
  let rules: ReadonlyMap<string, SavedRules>;

  beforeAll(async () => {
    process.stderr.write(`test/peer: ${states.length} states; again: ${again}\n`);
    cluster = await startCluster(paths);
    laboratory = await Laboratory.open();
    await writeNodes(cluster.api);
    await writeSentinel(cluster.api);
    await writeStates(cluster.api, states);
    const kubeconfig = cluster.kubeconfig("admin");
    views = await readViews(kubeconfig);
    rules = await runProxies(kubeconfig);
  }, 240_000);

  afterAll(async () => {
    await laboratory?.close();
    await cluster?.stop();
  });

  async function runProxies(kubeconfig: string): Promise<ReadonlyMap<string, SavedRules>> {
    const apiPort = Number(new URL(cluster.apiServer.url).port);
    const apiSocket = join(laboratory.folder, "api");
    const server = relay(apiSocket, apiPort);
    const common = { laboratory, program: paths["kube-proxy"], kubeconfig, apiPort, apiSocket };
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
    const [saved, view] = [rules.get(nodeName), views.get(nodeName)];
    if (saved === undefined || view === undefined) throw new Error(`nothing is known of ${nodeName}`);
    const { counts, differences } = compare(
      rulesAnswer(saved, nodeName),
      planAnswer(view, nodeName),
      services,
      nodeName,
    );
    process.stderr.write(`test/peer: ${nodeName}: ${JSON.stringify(counts)}\n`);
    expect(differences.size, `${describeDifferences(differences, seed, states)}\n\nagain: ${again}`).toBe(0);
    // A fault of the test could make both sides empty.
    for (const [kind, number] of Object.entries(counts)) expect(number, kind).toBeGreaterThan(0);
  });
});

/** Reads the API server with our source, serves the state, and returns the views of the nodes as they receive them. */
async function readViews(kubeconfig: string): Promise<ReadonlyMap<string, NodeView>> {
  const source = new RunningSource({ kubeconfig });
  try {
    await source.untilReady();
    const server = await serveStore(source.sink.store);
    try {
      const views = new Map<string, NodeView>();
      for (const nodeName of watchedNodes) {
        const stop = new AbortController();
        const log = createLog("error", () => undefined);
        const options = { transport: dial({ api: server.address }), nodeName, log, onConnection: () => undefined };
        for await (const { view } of followView(options, stop.signal)) {
          views.set(nodeName, view);
          stop.abort();
        }
      }
      return views;
    } finally {
      await server.stop();
    }
  } finally {
    await source.stop();
  }
}
