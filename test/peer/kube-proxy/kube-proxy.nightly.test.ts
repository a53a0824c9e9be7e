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
import type { KubeObject } from "../../cluster/api-client.ts";
import { findBinaries } from "../../cluster/binaries.ts";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { describeWhere } from "../../cluster/describe-where.ts";
import { RunningSource } from "../../cluster/run-source.ts";
import { type Comparison, compare, describeDifferences, planAnswer, rulesAnswer } from "./compare.ts";
import { generateState, maxStates } from "./generate-state.ts";
import { runKubeProxy } from "./kube-proxy.ts";
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
  let services: readonly KubeObject[];
  let views: ReadonlyMap<string, NodeView>;

  beforeAll(async () => {
    process.stderr.write(`test/peer: ${states.length} states; again: ${again}\n`);
    cluster = await startCluster(paths);
    laboratory = await Laboratory.open();
    await writeNodes(cluster.api);
    await writeStates(cluster.api, states);
    services = await cluster.api.list("/api/v1/services");
    views = await readViews(cluster.kubeconfig("admin"));
  }, 240_000);

  afterAll(async () => {
    await laboratory?.close();
    await cluster?.stop();
  });

  // kube-proxy learns the zone of its node from a separate watch, so its first rules may be others.
  test.concurrent.for(watchedNodes)(
    "give the same answers on node %s",
    { timeout: 240_000 },
    async (nodeName, context) => {
      const view = views.get(nodeName) ?? expect.fail(`nothing is known of ${nodeName}`);
      const apiPort = Number(new URL(cluster.apiServer.url).port);
      const apiSocket = join(laboratory.folder, `api-${nodeName}`);
      const server = relay(apiSocket, apiPort);
      const options = { laboratory, program: paths["kube-proxy"], kubeconfig: cluster.kubeconfig("admin"), nodeName };
      let found: Comparison | undefined;
      context.onTestFinished(() => void server.close());
      await runKubeProxy({ ...options, apiPort, apiSocket }, (rules) => {
        found = compare(rulesAnswer(rules, nodeName), planAnswer(view, nodeName), services, nodeName);
        return found.differences.size === 0;
      }).catch((cause: unknown) => {
        const differences = describeDifferences(found?.differences ?? new Map(), seed, states);
        throw new Error(`${differences}\n\nagain: ${again}`, { cause });
      });
      process.stderr.write(`test/peer: ${nodeName}: ${JSON.stringify(found?.counts)}\n`);
      // A fault of the test could make both sides empty.
      for (const [kind, number] of Object.entries(found?.counts ?? {})) expect(number, kind).toBeGreaterThan(0);
    },
  );
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
