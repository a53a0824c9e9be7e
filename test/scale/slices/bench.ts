import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { Sets as GlobalSets, GlobalWatchReqSchema } from "@kpng/model/gen/globalv1/api_pb.ts";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { NodeViewService, type WatchNodeViewResponse } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { freePorts } from "../../cluster/ports.ts";
import type { HollowNodesHandlers } from "../hollow-nodes.ts";
import { makeEndpoint } from "../large-cluster.ts";
import { mebibytes } from "../proc.ts";
import { bundled, startCalled } from "../processes.ts";
import { watcherEnvironment } from "../watcher-environment.ts";
import { ListServer } from "./list-server.ts";
import type { PhaseTurns } from "./turn-probe.ts";

/**
 * Measures for how long a watcher of a large cluster keeps its event loop, in each phase of its life: the longest turn
 * without garbage collection, the longest piece of collection, the delay of timers, and memory. See turn-probe.ts for
 * what a turn is.
 *
 * `npm run bench -- slices` measures both shapes of 100 000 endpoints; `npm run bench -- slices 1` the first alone.
 */
interface Shape {
  readonly services: number;
  readonly slicesPerService: number;
  readonly endpointsPerSlice: number;
  readonly streams: boolean;
}

const shapes: readonly Shape[] = [
  { services: 10_000, slicesPerService: 1, endpointsPerSlice: 10, streams: true },
  { services: 1_000, slicesPerService: 1, endpointsPerSlice: 100, streams: false },
];

const nodeCount = 1_000;

/** A further Service with 50 slices of 100 endpoints, for the change of a large Service. */
const large = { name: "large", slices: 50, endpoints: 100 };

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function object(kind: string, name: string, version: number, fields: object, labels: object = {}): [string, string] {
  const metadata = { name, namespace: "default", resourceVersion: String(version), labels };
  return [name, JSON.stringify({ kind, metadata, ...fields })];
}

function makeSlice(service: string, name: string, version: number, pods: readonly number[], firstIsReady: boolean) {
  const endpoints = pods.map((pod, index) => makeEndpoint(pod, nodeCount, index > 0 || firstIsReady));
  const fields = { addressType: "IPv4", ports: [{ name: "http", port: 8080, protocol: "TCP" }], endpoints };
  return object("EndpointSlice", name, version, fields, { "kubernetes.io/service-name": service });
}

function podsFrom(first: number, count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => first + index);
}

function fill({ objects }: ListServer, shape: Shape): void {
  for (let index = 0; index < nodeCount; index += 1) {
    const labels = { "topology.kubernetes.io/zone": `zone-${index % 3}` };
    objects.nodes.set(...object("Node", `node-${index}`, 1, {}, labels));
  }
  const addService = (name: string, index: number): void => {
    const clusterIP = `172.${16 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
    const ports = [{ name: "http", port: 80, targetPort: 8080, protocol: "TCP" }];
    const spec = { type: "ClusterIP", clusterIP, clusterIPs: [clusterIP], ports };
    objects.services.set(...object("Service", name, 1, { spec }));
  };
  for (let index = 0; index < shape.services; index += 1) {
    const name = `service-${index}`;
    addService(name, index);
    for (let slice = 0; slice < shape.slicesPerService; slice += 1) {
      const first = (index * shape.slicesPerService + slice) * shape.endpointsPerSlice;
      const made = makeSlice(name, `${name}-${slice}`, 1, podsFrom(first, shape.endpointsPerSlice), true);
      objects.endpointslices.set(...made);
    }
  }
  addService(large.name, shape.services);
  for (const [name, text] of largeSlices(1, true)) objects.endpointslices.set(name, text);
}

function largeSlices(version: number, firstIsReady: boolean, count = large.slices): Map<string, string> {
  return new Map(
    Array.from({ length: count }, (_, slice) => {
      const pods = podsFrom(1_000_000 + slice * large.endpoints, large.endpoints);
      return makeSlice(large.name, `large-${slice}`, version, pods, firstIsReady);
    }),
  );
}

async function measure(shape: Shape): Promise<void> {
  const api = new ListServer();
  api.streams = shape.streams;
  fill(api, shape);
  const folder = mkdtempSync(join(tmpdir(), "kpng-slices-"));
  const kubeconfig = join(folder, "kubeconfig");
  const cluster = { name: "c", cluster: { server: await api.listen() } };
  const context = { name: "c", context: { cluster: "c", user: "u" } };
  const config = { clusters: [cluster], contexts: [context], users: [{ name: "u", user: {} }], "current-context": "c" };
  writeFileSync(kubeconfig, JSON.stringify(config));
  const [apiPort = 0, healthPort = 0] = await freePorts(2);
  const address = `127.0.0.1:${apiPort}`;
  const profile = process.env.KPNG_BENCH_PROFILE;
  const watcher = spawn(
    process.execPath,
    [
      "--expose-gc",
      ...(profile === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", profile]),
      "--import",
      bundled("turn-probe"),
      bundled("kpng"),
      "kube",
      "--kubeconfig",
      kubeconfig,
      "to-api",
      "--listen",
      `tcp://${address}`,
      "--healthz-bind-address",
      `127.0.0.1:${healthPort}`,
    ],
    { stdio: ["ignore", "ignore", "inherit", "ipc"], env: watcherEnvironment() },
  );
  const load = startCalled<HollowNodesHandlers>("hollow-nodes.ts", "load");
  const mark = async (name: string, message: "mark" | "collect" = "mark"): Promise<void> => {
    watcher.send(message);
    const [turns] = (await once(watcher, "message")) as [PhaseTurns];
    const ms = (value: number): string => value.toFixed(0);
    const cells = [
      name,
      turns.longestMs.map(ms).join(", "),
      ms(turns.gcMaxMs),
      ms(turns.gcTotalMs),
      ms(turns.delayP999Ms),
      mebibytes(turns.rssBytes),
      `${mebibytes(turns.heapUsedBytes)} of ${mebibytes(turns.heapTotalBytes)}`,
      mebibytes(turns.buffersBytes),
    ];
    say(`| ${cells.join(" | ")} |`);
  };
  const revision = async (): Promise<bigint> => (await client.getStatus({})).revision;
  const client = createClient(InspectService, dial({ api: address }));
  const changed = async (work: () => void): Promise<void> => {
    const before = await revision();
    work();
    while ((await revision()) === before) await sleep(50);
    await sleep(1_000);
  };
  try {
    const isReady = () =>
      fetch(`http://127.0.0.1:${healthPort}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    while (api.listCount === 0) await sleep(5);
    await mark("process start");
    while (!(await isReady())) await sleep(50);
    await sleep(1_000);
    await mark("first lists");
    for (const isExtended of [true, false]) {
      const fleet = `nodes-${isExtended}`;
      await load.call("open", {
        fleet,
        options: { address, streams: 50, firstNode: 0, isExtended },
        timeoutMs: 120_000,
      });
      await mark(`first views, 50 ${isExtended ? "of our nodes" : "nodes of the original KPNG"}`);
    }
    await relay(address);
    await mark("first view of a relay");
    for (const kind of ["endpointslices", "services"] as const) {
      const before = api.listCount;
      api.expire(kind);
      while (api.listCount === before) await sleep(20);
      await sleep(6_000);
      await mark(`relist of ${kind} that changes nothing`);
    }
    await changed(() => api.put("endpointslices", largeSlices(api.nextVersion, false, 1)));
    await mark("one endpoint of a Service with 5 000");
    await changed(() => api.put("endpointslices", largeSlices(api.nextVersion, true)));
    await mark("all slices of a Service with 5 000");
    await readAll((pageToken) => client.listServices({ pageSize: 1_000, pageToken }));
    await mark("list of Services");
    await readAll((pageToken) => client.listEndpoints({ pageSize: 1_000, pageToken }));
    await mark("list of endpoints");
    await readAll((pageToken) => client.listNodes({ pageSize: 1_000, pageToken }));
    await mark("list of nodes");
    for (const isJson of [false, true]) {
      const connect = createConnectTransport({ baseUrl: `http://${address}`, httpVersion: "1.1" });
      const views = createClient(NodeViewService, isJson ? connect : dial({ api: address }));
      await views.getNodeView({ nodeName: "node-1" });
      await mark(`GetNodeView, ${isJson ? "JSON" : "binary"}`);
      await firstBatch(views.watchNodeView({ nodeName: "node-2" }));
      await mark(`first batch of WatchNodeView, ${isJson ? "JSON" : "binary"}`);
    }
    const kept = new Map([...api.objects.endpointslices].slice(0, 10));
    const all = new Map(api.objects.endpointslices);
    api.objects.endpointslices.clear();
    for (const [name, text] of kept) api.objects.endpointslices.set(name, text);
    const before = api.listCount;
    api.expire("endpointslices");
    while (api.listCount === before) await sleep(20);
    await sleep(2_000);
    await mark("list whose deletions are held");
    await mark("after full collections", "collect");
    await load.stop();
    await sleep(1_000);
    await mark("after all nodes have disconnected", "collect");
    for (const [name, text] of all) api.objects.endpointslices.set(name, text);
  } finally {
    await load.stop();
    watcher.kill();
    await once(watcher, "exit");
    api.close();
    rmSync(folder, { recursive: true });
  }
}

/** Reads the whole state, as a relay does. */
async function relay(address: string): Promise<void> {
  const client = createClient(GlobalSets, dial({ api: address }));
  const done = Promise.withResolvers<void>();
  const requests = (async function* once() {
    yield create(GlobalWatchReqSchema, { Features: [Feature.Extended] });
    await done.promise;
  })();
  for await (const { Op: op } of client.watch(requests)) if (op.case === "Sync") break;
  done.resolve();
}

async function firstBatch(batches: AsyncIterable<WatchNodeViewResponse>): Promise<void> {
  for await (const { ops } of batches) if (ops.at(-1)?.Op.case === "Sync") return;
}

async function readAll(read: (pageToken: string) => Promise<{ readonly nextPageToken: string }>): Promise<void> {
  let pageToken = "";
  do pageToken = (await read(pageToken)).nextPageToken;
  while (pageToken !== "");
}

const only = process.argv[2];
for (const shape of only === undefined ? shapes : shapes.slice(Number(only) - 1, Number(only))) {
  const { services, slicesPerService, endpointsPerSlice, streams } = shape;
  say(
    `${services} Services × ${slicesPerService} slices of ${endpointsPerSlice} endpoints, ` +
      `lists ${streams ? "streamed" : "in pages"}\n`,
  );
  say(
    "| phase | longest turns, ms | longest piece of GC | all GC | p99.9 of the loop delay | RSS | heap in use | buffers |",
  );
  say("| --- | --- | --: | --: | --: | --: | --: | --: |");
  await measure(shape);
  say("");
}
