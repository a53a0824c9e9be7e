import type { ChildProcess } from "node:child_process";
import { loadavg } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { Cluster } from "../../cluster/cluster.ts";
import { createService, createSlice, slicesPath } from "../../cluster/objects.ts";
import { monotonicMs, quantile } from "../proc.ts";
import { bundled } from "../processes.ts";
import { onClusters, startWatcher } from "./bench-cluster.ts";
import { describeShape } from "./measure-proxy.ts";

/**
 * Measures the time from sending a PATCH of an EndpointSlice to a real API server until the element is in the kernel,
 * through watcher, stream and kpng-nft, each a process of its own: `npm run bench -- nft-patch`.
 */
const patches = 300;
/** Time between two changes, in milliseconds. */
const pauseMs = 150;
const beacon = "beacon";

function beaconEndpoints(number: number) {
  const addresses = [`10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`];
  return [{ addresses, conditions: { ready: true, serving: true, terminating: false }, nodeName: "n2" }];
}

/** A network namespace with kpng-nft and the probe of node-probe.ts. */
class ProbedNode {
  readonly #laboratory: Laboratory;
  readonly #seenMs = new Map<number, number>();
  #newest = -1;

  private constructor(laboratory: Laboratory, backend: ChildProcess, probe: ChildProcess) {
    this.#laboratory = laboratory;
    backend.stderr?.on("data", (data) => process.stderr.write(data));
    probe.stderr?.on("data", (data) => process.stderr.write(data));
    if (probe.stdout === null) throw new Error("the probe has no output");
    createInterface({ input: probe.stdout }).on("line", (line) => {
      const { beacon, atMs } = JSON.parse(line);
      this.#newest = beacon;
      this.#seenMs.set(beacon, atMs);
    });
  }

  static async start(api: string): Promise<ProbedNode> {
    const laboratory = await Laboratory.open();
    await laboratory.add("node");
    await laboratory.run("node", ["ip", "link", "set", "lo", "up"]);
    const options = ["--node-name", "n1", "--state-dir", "none", "--log-level", "error"];
    const backend = laboratory.start("node", [
      ...[process.execPath, bundled("kpng-nft"), "--api", api, ...options],
      ...["--cluster-cidr", "10.0.0.0/8", "--metrics-bind-address", "127.0.0.1:10249"],
    ]);
    const probe = laboratory.start("node", [process.execPath, join(import.meta.dirname, "node-probe.ts")]);
    return new ProbedNode(laboratory, backend, probe);
  }

  /** Time of the first sight of this or a later number of the beacon, by `monotonicMs`; undefined if not in time. */
  async seen(beacon: number, limitMs: number): Promise<number | undefined> {
    const deadlineMs = performance.now() + limitMs;
    while (this.#newest < beacon) {
      if (performance.now() > deadlineMs) return undefined;
      await sleep(2);
    }
    const later = [...this.#seenMs].filter(([number]) => number >= beacon).map(([, atMs]) => atMs);
    return Math.min(...later);
  }

  close(): Promise<void> {
    return this.#laboratory.close();
  }
}

async function addBeacon({ api }: Cluster): Promise<void> {
  const ports = [{ name: "p80", port: 80, targetPort: 8_080 }];
  await createService(api, { name: beacon, spec: { ports, sessionAffinity: "ClientIP" } });
  const more = { ports: [{ name: "p80", port: 8_080, protocol: "TCP" }], endpoints: beaconEndpoints(1) };
  await createSlice(api, { name: beacon, service: beacon, addresses: [], more });
}

async function measure(cluster: Cluster, node: ProbedNode): Promise<void> {
  const toKernel: number[] = [];
  const toAnswer: number[] = [];
  for (let number = 2; number < patches + 2; number++) {
    await sleep(pauseMs);
    const sentMs = monotonicMs();
    const answered = cluster.api
      .patch(`${slicesPath()}/${beacon}`, { endpoints: beaconEndpoints(number) })
      .then(() => void toAnswer.push(monotonicMs() - sentMs));
    const seenMs = await node.seen(number, 30_000);
    if (seenMs === undefined) throw new Error(`change ${number} was not in the kernel within 30 s`);
    toKernel.push(seenMs - sentMs);
    await answered;
  }
  const show = (times: readonly number[]): string =>
    `median ${quantile(times, 0.5).toFixed(1)} ms, p99 ${quantile(times, 0.99).toFixed(1)} ms`;
  process.stdout.write(
    `  PATCH to the element in the kernel: ${show(toKernel)}; the API server's own answer: ${show(toAnswer)}\n`,
  );
}

await onClusters(async ({ cluster, shape, socket }) => {
  await addBeacon(cluster);
  const watcher = await startWatcher(cluster, socket);
  const node = await ProbedNode.start(`unix://${socket}`);
  try {
    if ((await node.seen(1, 120_000)) === undefined) throw new Error("the first view was not applied within 120 s");
    // The remaining work of the start must not count for the first change.
    await sleep(5_000);
    process.stdout.write(`${describeShape(shape)}, ${patches} changes (load ${loadavg()[0]?.toFixed(0)})\n`);
    await measure(cluster, node);
  } finally {
    await node.close();
    watcher.kill();
  }
});
