import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ApiClient } from "../../cluster/api-client.ts";
import { findBinaries } from "../../cluster/binaries.ts";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { createNode, createService, createSlice, slicesPath } from "../../cluster/objects.ts";
import { freePort } from "../../cluster/ports.ts";

/** Services of equal size: IPv4, cluster IPs, all endpoints on other nodes. */
export interface ClusterShape {
  readonly services: number;
  readonly ports: number;
  readonly endpoints: number;
}

/** A real API server with Services, on which a benchmark runs proxies. */
interface BenchCluster {
  readonly cluster: Cluster;
  readonly shape: ClusterShape;
  /** Unix socket for a watcher of the cluster; `startWatcher` starts one. */
  readonly socket: string;
  /** Program of the real kube-proxy. */
  readonly kubeProxy: string;
}

/** Number of objects created in parallel; a larger number does not make the API server faster. */
const concurrency = 32;

/** Numbers of Services. */
const sizes = [1_000, 5_000];

/**
 * Runs `measure` with a new cluster for each number of Services, and then ends the process; ends it with exit status 1 if
 * a binary of Kubernetes is missing.
 */
export async function onClusters(measure: (bench: BenchCluster) => Promise<void>): Promise<never> {
  const found = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
  if (found.kind !== "found") {
    process.stdout.write(`cannot run: ${found.reason}\n`);
    process.exit(1);
  }
  const kubeProxy = found.paths["kube-proxy"];
  for (const services of sizes) {
    const shape = { services, ports: 2, endpoints: 10 };
    const cluster = await startCluster(found.paths);
    try {
      await fillWithServices(cluster.api, shape);
      await measure({ cluster, shape, socket: join(cluster.folder, "watcher.sock"), kubeProxy });
    } finally {
      await cluster.stop();
    }
  }
  process.exit();
}

/** Starts a watcher of a cluster that serves a unix socket, and waits until it is ready. */
export async function startWatcher(cluster: Cluster, socket: string): Promise<ChildProcess> {
  const main = join(import.meta.dirname, "../../../services/cli/src/main.ts");
  const port = await freePort();
  const child = spawn(
    process.execPath,
    [
      ...[main, "kube", "--kubeconfig", cluster.kubeconfig("admin"), "to-api", "--listen", `unix://${socket}`],
      ...["--healthz-bind-address", `127.0.0.1:${port}`, "--log-level", "error"],
    ],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  const isReady = () =>
    fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) await sleep(50);
  return child;
}

/** Fills an API server with a Node n1 and the Services of the shape, each with one slice. */
async function fillWithServices(api: ApiClient, shape: ClusterShape): Promise<void> {
  await createNode(api, "n1");
  await api.patch("/api/v1/nodes/n1", { spec: { podCIDR: "10.200.0.0/24", podCIDRs: ["10.200.0.0/24"] } });
  await inParallel(shape.services, async (at) => {
    const name = `service-${at}`;
    const ports = portNumbers(shape).map((port) => ({ name: `p${port}`, port, targetPort: 8_000 + port }));
    await createService(api, { name, spec: { ports } });
    const more = {
      ports: portNumbers(shape).map((port) => ({ name: `p${port}`, port: 8_000 + port, protocol: "TCP" })),
      endpoints: makeEndpoints(shape, at, shape.endpoints),
    };
    await createSlice(api, { name, service: name, addresses: [], more });
  });
}

/** Sets the number of endpoints of a Service, which changes one object. */
export async function setEndpoints(api: ApiClient, shape: ClusterShape, at: number, count: number): Promise<void> {
  await api.patch(`${slicesPath()}/service-${at}`, { endpoints: makeEndpoints(shape, at, count) });
}

/** Ports of each Service. */
function portNumbers({ ports }: ClusterShape): readonly number[] {
  return Array.from({ length: ports }, (_, index) => 80 + index);
}

function makeEndpoints({ endpoints }: ClusterShape, at: number, count: number) {
  return Array.from({ length: count }, (_, index) => {
    const number = at * endpoints + index;
    return {
      addresses: [`10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: "n2",
    };
  });
}

async function inParallel(count: number, act: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}
