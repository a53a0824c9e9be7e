import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { say, sayTable } from "../report.ts";
import { costs, fits, predictions } from "./calibration.ts";
import { scenarios, steadyRate } from "./scenarios.ts";
import { chart } from "./svg.ts";
import { type Cluster, simulate } from "./tiers.ts";

// Prints what the model says of clusters of 1 000 to 100 000 nodes, and draws docs/images/model-*.svg.

/** Nodes that one process serves at most; more processes share the others. */
const nodesPerProcess = 2_500;
/** Watchers and relays beyond what the nodes need, for the time when one is away. */
const spare = 1;

function clusterOf(nodes: number): Cluster {
  const serving = Math.ceil(nodes / nodesPerProcess) + spare;
  const size = { nodes, services: nodes / 2, endpoints: nodes * 10 };
  return serving <= 3 ? { ...size, watchers: serving, relays: 0 } : { ...size, watchers: 2, relays: serving };
}

const count = (value: number): string => value.toLocaleString("en").replaceAll(",", " ");
const time = (ms = Number.NaN): string => {
  if (Number.isNaN(ms)) return "";
  return ms < 1_000 ? `${ms.toFixed(0)} ms` : `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
};
const percent = (share = Number.NaN): string => (Number.isNaN(share) ? "" : `${(share * 100).toFixed(0)} %`);

say("# Costs, fitted to measured rows\n");
sayTable(
  ["value", "terms", "coefficients", "worst residual"],
  fits.map(({ value, terms, coefficients, residuals }) => [
    ...[value, terms, coefficients.map((one) => one.toPrecision(3)).join(", ")],
    percent(Math.max(...residuals.map(Math.abs))),
  ]),
);
say("# Rows that were not fitted\n");
sayTable(
  ["row", "value", "measured", "predicted", "difference"],
  predictions.map(({ row, value, measured, predicted }) => [
    ...[row, value, measured.toFixed(0), predicted.toFixed(0)],
    percent(predicted / measured - 1),
  ]),
);

const clusters = [1_000, 5_000, 15_000, 65_000, 100_000].map(clusterOf);
for (const cluster of clusters) {
  const { nodes, services, endpoints, watchers, relays } = cluster;
  say(
    `# ${count(nodes)} nodes, ${count(services)} Services, ${count(endpoints)} endpoints: ${watchers} watchers, ${relays} relays\n`,
  );
  sayTable(
    ["what happens", "last node p50", "p99", "last to connect", "watcher", "relay", "sent by each", "memory of each"],
    scenarios(cluster).map((scenario) => {
      const { lastNodeMs, connectMs, watcher, relay } = simulate(costs, cluster, scenario);
      const { bytesPerSecond, memoryBytes } = relay ?? watcher;
      return [
        ...[scenario.name, time(lastNodeMs.p50), time(lastNodeMs.p99), time(connectMs)],
        ...[percent(watcher.cpu), percent(relay?.cpu)],
        ...[`${(bytesPerSecond / 1e6).toFixed(1)} MB/s`, `${(memoryBytes / 2 ** 30).toFixed(1)} GiB`],
      ];
    }),
  );
}

const nodeAxis = { from: 1_000, to: 100_000, format: count };
const draw = (name: string, ...args: Parameters<typeof chart>): void =>
  writeFileSync(join(import.meta.dirname, `../../../docs/images/${name}.svg`), chart(...args));
const lineOf = (name: string, of: (cluster: Cluster) => number) => ({
  name,
  points: clusters.map((cluster) => [cluster.nodes, of(cluster)] as const),
});

/** Bytes of an event with a slice of 20 endpoints in protobuf, as the Go clients of API servers read it (assumed). */
const sliceBytes = 20 * 120;
/** Nodes of one Typha, as its operator plans. */
const nodesPerTypha = 200;
draw(
  "model-api-server",
  "Bytes per second that API servers send for EndpointSlices, 1 % of the pods an hour",
  "nodes",
  nodeAxis,
  { from: 1e2, to: 1e10, format: (value) => `1e${Math.log10(value).toFixed(0)}` },
  [
    lineOf("kube-proxy", (cluster) => cluster.nodes * steadyRate(cluster) * sliceBytes),
    lineOf(
      "one Typha per 200 nodes",
      (cluster) => Math.max(3, cluster.nodes / nodesPerTypha + 1) * steadyRate(cluster) * sliceBytes,
    ),
    lineOf("kpng, two or three watchers", (cluster) => cluster.watchers * steadyRate(cluster) * sliceBytes),
  ],
);
const [steady, rollouts] = [0, 1].map((at) => (cluster: Cluster): number => {
  const scenario = scenarios(cluster)[at];
  return scenario === undefined ? Number.NaN : simulate(costs, cluster, scenario).lastNodeMs.p99 / 1_000;
});
draw(
  "model-last-node",
  "Seconds from a revision to the last node, 99th percentile",
  "nodes",
  nodeAxis,
  { from: 0.01, to: 100, format: String },
  [
    lineOf("kpng, 1 % an hour", steady ?? Number),
    lineOf("kpng, 5 000 pods a minute", rollouts ?? Number),
    // Until the rules are in the kernel; minSyncPeriod is 1 s.
    { name: "kube-proxy, iptables (KEP-3453)", points: [[5_000, 24]] },
  ],
);
