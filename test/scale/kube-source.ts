import { spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { findBinaries } from "../cluster/binaries.ts";
import { type Cluster, startCluster } from "../cluster/cluster.ts";
import { freePorts } from "../cluster/ports.ts";
import { GrpcJsWatch } from "../peer/grpc-js-client.ts";
import { fillCluster, inParallel, type LargeClusterOptions, makeEndpoint } from "./large-cluster.ts";
import { mebibytes, quantile, usageOf } from "./proc.ts";

/**
 * Measures a watcher on a large real API server: the time from its start until it is ready, its memory, its CPU time
 * for a stream of endpoint updates, and the time from a PATCH of one slice to the operation on a connected stream.
 */
const shapes: readonly LargeClusterOptions[] = [
  { services: 10_000, slices: 1_000, endpointsPerSlice: 100, nodes: 1_000 },
  { services: 10_000, slices: 10_000, endpointsPerSlice: 10, nodes: 1_000 },
];

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function measure(cluster: Cluster, shape: LargeClusterOptions): Promise<void> {
  const [apiPort = 0, healthPort = 0] = await freePorts(2);
  const args = [
    "kube",
    "--kubeconfig",
    cluster.kubeconfig("admin"),
    "to-api",
    "--listen",
    `tcp://127.0.0.1:${apiPort}`,
  ];
  const startedAt = performance.now();
  const watcher = spawn(
    process.execPath,
    ["services/cli/src/main.ts", ...args, "--healthz-bind-address", `127.0.0.1:${healthPort}`],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  const { pid = 0 } = watcher;
  try {
    const isReady = () =>
      fetch(`http://127.0.0.1:${healthPort}/readyz`).then(
        (answer) => answer.ok,
        () => false,
      );
    while (!(await isReady())) await sleep(20);
    const readyMs = performance.now() - startedAt;
    const ready = usageOf(pid);
    print(
      `  ready after ${(readyMs / 1000).toFixed(1)} s, ${(ready.cpuMs / 1000).toFixed(1)} CPU-s, RSS peak ${mebibytes(ready.peakRssBytes)}`,
    );
    await sleep(10_000);
    const settled = usageOf(pid);
    print(`  settled after 10 s: RSS ${mebibytes(settled.rssBytes)}`);
    await updates(cluster, shape, pid);
    await latency(cluster, shape, `127.0.0.1:${apiPort}`);
    print(`  at the end: RSS ${mebibytes(usageOf(pid).rssBytes)}, peak ${mebibytes(usageOf(pid).peakRssBytes)}`);
  } finally {
    watcher.kill();
  }
}

/** Measures the CPU time for 1 000 updates of one endpoint each, as fast as the API server accepts them. */
async function updates(cluster: Cluster, shape: LargeClusterOptions, pid: number): Promise<void> {
  const before = usageOf(pid);
  const startedAt = performance.now();
  await inParallel(1_000, (index) =>
    toggle(cluster, shape, index % shape.slices, index % 2 === 0).then(() => undefined),
  );
  const elapsedMs = performance.now() - startedAt;
  await sleep(500);
  const perHundred = (usageOf(pid).cpuMs - before.cpuMs) / 10;
  print(`  ${Math.round(1_000_000 / elapsedMs)} endpoint updates/s: ${perHundred.toFixed(0)} CPU-ms per 100 updates`);
}

/** Measures the time until the operation on a stream, from sending a PATCH and from its response. */
async function latency(cluster: Cluster, shape: LargeClusterOptions, address: string): Promise<void> {
  const watch = new GrpcJsWatch(address, "local");
  await watch.ask({ NodeName: "node-1" });
  const fromSend: number[] = [];
  const answers: number[] = [];
  for (let count = 0; count < 200; count += 1) {
    watch.send({ NodeName: "node-1" });
    await sleep(5);
    const sentAt = performance.now();
    const told = watch.batch().then(() => performance.now() - sentAt);
    await toggle(cluster, shape, count % shape.slices, count % 2 === 1);
    answers.push(performance.now() - sentAt);
    fromSend.push(await told);
  }
  watch.close();
  const show = (values: readonly number[], share: number): string => quantile(values, share).toFixed(1);
  print(`  the PATCH's own answer: median ${show(answers, 0.5)} ms, p99 ${show(answers, 0.99)} ms`);
  print(
    `  from sending a PATCH to the op on a stream: median ${show(fromSend, 0.5)} ms, p99 ${show(fromSend, 0.99)} ms (200)`,
  );
}

/** Makes the first endpoint of a slice ready or not. */
async function toggle(cluster: Cluster, shape: LargeClusterOptions, slice: number, isReady: boolean): Promise<unknown> {
  const { endpointsPerSlice, nodes } = shape;
  const endpoints = Array.from({ length: endpointsPerSlice }, (_, pod) =>
    makeEndpoint(slice * endpointsPerSlice + pod, nodes, pod > 0 || isReady),
  );
  return cluster.api.patch(`/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/slice-${slice}`, { endpoints });
}

const found = await findBinaries(["etcd", "kube-apiserver"]);
if (found.kind !== "found") {
  print(`cannot run: ${found.reason}`);
  process.exit(1);
}
// `kube-source.ts 1` measures the first shape alone.
const only = process.argv[2];
for (const shape of only === undefined ? shapes : shapes.slice(Number(only) - 1, Number(only))) {
  const { services, slices, endpointsPerSlice, nodes } = shape;
  print(`${services} Services, ${slices} slices of ${endpointsPerSlice} endpoints, ${nodes} Nodes`);
  const cluster = await startCluster({ paths: found.paths, hasControllers: false });
  try {
    const startedAt = performance.now();
    await fillCluster(cluster.api, shape);
    print(`  (filled in ${((performance.now() - startedAt) / 1000).toFixed(0)} s)`);
    await measure(cluster, shape);
  } finally {
    await cluster.stop();
  }
}
