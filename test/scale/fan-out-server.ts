import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { toBinary } from "@bufbuild/protobuf";
import { EndpointSchema, ServiceSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { encodeExtendedEndpoint, encodeKpngEndpoint } from "@kpng/model/testing/endpoint-messages.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { readServerTls } from "@kpng/process/credential-files.ts";
import { growOldGenerationByHalf } from "@kpng/process/run/memory.ts";
import { viewTargetIn } from "@kpng/watcher/items/view-target.ts";
import type { ObjectChange } from "@kpng/watcher/source/source.ts";
import { type Snapshot, slicesOf } from "@kpng/watcher/store/snapshot.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { viewBuckets } from "@kpng/watcher/stream/delta/resume-view.ts";
import { observeConvergence } from "@kpng/watcher/stream/session/convergence.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { choosingNode, makeServiceView } from "@kpng/watcher/view/service-view.ts";
import { Registry } from "prom-client";
import type { MadeChange } from "./batches.ts";
import { answerCalls } from "./calls.ts";
import { digestView, type ViewDigest } from "./held-view.ts";
import { monotonicMs, usageOf } from "./proc.ts";
import { endpointChange, makeScript, type ScriptName } from "./scripts.ts";
import { makeCluster, makeService, type SyntheticShape } from "./synthetic.ts";

/**
 * Process with the server under test: a store with a synthetic cluster, served by the watcher's own serveTask.
 */
const store = new Store();
const registry = new Registry();
const subscribers = new Subscribers(registry);
// `kpng to-api` does the same.
observeConvergence(store, subscribers, registry);
let shape: SyntheticShape = { services: 0, endpoints: 0, nodes: 0 };
let changesMade = 0;
let markersMade = 0;
/** The changes in progress; see `churn`. */
let churn: Churn | undefined;
let delay: ReturnType<typeof monitorEventLoopDelay> | undefined;

interface Churn {
  readonly timer: NodeJS.Timeout;
  readonly changes: MadeChange[];
  readonly sinceRevision: number;
}

export interface StartOptions {
  readonly shape: SyntheticShape;
  readonly tls?: Parameters<typeof readServerTls>[1];
}

export interface ScriptResult {
  readonly changes: readonly MadeChange[];
  /** Revision of the store before the first change. */
  readonly sinceRevision: number;
  /** CPU time at the first step. */
  readonly cpuMs: number;
}

interface WriteDigests {
  readonly path: string;
  readonly firstNode: number;
  readonly nodes: number;
}

function apply(changes: readonly ObjectChange[]): MadeChange {
  const atMs = monotonicMs();
  store.apply(changes);
  return { revision: store.snapshot.revision, atMs };
}

/**
 * Returns a change that every stream receives. Changes that cancel each other while a stream is busy are never sent, so
 * a test would wait for their revisions without end.
 */
function nextMarker(): ObjectChange {
  markersMade += 1;
  const labels = { marker: String(markersMade) };
  return { kind: "put-service", service: { ...makeService(0), name: "marker", labels } };
}

const handlers = {
  async start(options: StartOptions) {
    // `kpng to-api` does the same.
    growOldGenerationByHalf();
    shape = options.shape;
    store.replace(makeCluster(shape));
    const tls = options.tls === undefined ? undefined : readServerTls("", options.tls);
    const server = await serveStore(store, { subscribers, ...(tls === undefined ? {} : { tls }) });
    return { address: server.address };
  },

  /** Changes one endpoint. */
  change(_: Record<never, never>): MadeChange & { readonly cpuMs: number } {
    const change = endpointChange(changesMade, shape);
    changesMade += 1;
    return { cpuMs: cpuMs(), ...apply([change]) };
  },

  /** Changes one endpoint after the other, until `endChurn`. A busy server catches up. */
  churn({ changesPerSecond }: { readonly changesPerSecond: number }): void {
    const startedAtMs = monotonicMs();
    const changes: MadeChange[] = [];
    const timer = setInterval(() => {
      const due = Math.floor(((monotonicMs() - startedAtMs) / 1_000) * changesPerSecond);
      while (changes.length < due) {
        changes.push(apply([endpointChange(changesMade, shape)]));
        changesMade += 1;
      }
    }, 5);
    churn = { timer, changes, sinceRevision: store.snapshot.revision };
  },

  endChurn(_: Record<never, never>) {
    const { timer, changes = [], sinceRevision = 0 } = churn ?? {};
    clearInterval(timer);
    return { changes, sinceRevision };
  },

  /** Makes one endpoint unready in each of so many Services, for good. */
  age({ changes }: { readonly changes: number }): void {
    apply(Array.from({ length: changes }, (_, index) => endpointChange(changesMade + 2 * index, shape)));
    changesMade += 2 * changes;
  },

  /** Returns the revision after the change. */
  prepare({ script }: { readonly script: ScriptName }): number {
    const { before } = makeScript(script, shape);
    return apply([...before, nextMarker()]).revision;
  },

  /**
   * Runs the steps of a script at its pace. Steps later than `timeoutMs` are skipped. A marker follows the last step.
   */
  async play({
    script,
    timeoutMs,
  }: {
    readonly script: ScriptName;
    readonly timeoutMs: number;
  }): Promise<ScriptResult> {
    const { steps, stepsPerSecond } = makeScript(script, shape);
    const sinceRevision = store.snapshot.revision;
    const changes: MadeChange[] = [];
    const beganCpuMs = cpuMs();
    const startedAtMs = monotonicMs();
    const dueAtMs = (index: number): number => startedAtMs + (index * 1000) / stepsPerSecond;
    for (const [index, step] of steps.entries()) {
      const early = dueAtMs(index) - monotonicMs();
      // A busy server is late; it still needs the event loop between two steps.
      await (early > 0 ? sleep(early) : turn());
      if (monotonicMs() > startedAtMs + timeoutMs) break;
      changes.push(apply(step));
    }
    changes.push(apply([nextMarker()]));
    return { changes, sinceRevision, cpuMs: beganCpuMs };
  },

  restore({ script }: { readonly script: ScriptName }): number {
    const { after } = makeScript(script, shape);
    return apply([...after, nextMarker()]).revision;
  },

  /** Writes the digests of the views of some nodes to a file; see FleetOptions.heldDigests. */
  writeDigests({ path, firstNode, nodes }: WriteDigests): void {
    const request = { proxyName: "", isExtended: true, wantsNode: false };
    const digests = Array.from({ length: nodes }, (_, index) =>
      viewBuckets(store.snapshot, viewTargetIn(store.snapshot, { ...request, nodeName: `node-${firstNode + index}` })),
    );
    writeFileSync(path, Buffer.concat(digests.map((one) => one.toBytes())));
  },

  cpu(_: Record<never, never>): number {
    return cpuMs();
  },

  usage({ settle }: { readonly settle: boolean }): Promise<ServerUsage> {
    return serverUsage(settle);
  },

  watchDelay(_: Record<never, never>): void {
    delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
  },

  /** Maximum and 99th percentile of the event loop delay since `watchDelay`, in milliseconds. */
  delay(_: Record<never, never>): { readonly p99: number; readonly max: number } {
    delay?.disable();
    return { p99: (delay?.percentile(99) ?? 0) / 1e6, max: (delay?.max ?? 0) / 1e6 };
  },

  digest({ nodeName, isExtended }: { readonly nodeName: string; readonly isExtended: boolean }) {
    return expectedView(store.snapshot, nodeName, isExtended);
  },
};

/** Resources used by the server process. */
export interface ServerUsage {
  /** User and system time so far, all threads, in milliseconds. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly peakRssBytes: number;
  /** JavaScript memory: heap in use and external buffers. */
  readonly heapBytes: number;
}

/** CPU time of this process so far, all threads, in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Returns the usage of this process. `settle` first collects garbage, as V8 does after some idle seconds. */
async function serverUsage(settle: boolean): Promise<ServerUsage> {
  for (let round = 0; settle && round < 3; round += 1) {
    await globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "async" });
    await sleep(100);
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  const { peakRssBytes } = usageOf(process.pid);
  return { cpuMs: cpuMs(), rssBytes: rss, peakRssBytes, heapBytes: heapUsed + external };
}

/**
 * Returns what a subscriber must hold after receiving a whole snapshot. Each Service is computed separately, without
 * the data that streams share or cache.
 */
function expectedView(snapshot: Snapshot, nodeName: string, isExtended: boolean): ViewDigest {
  const items: (readonly [string, Uint8Array])[] = [];
  const node = choosingNode(snapshot, nodeName);
  for (const service of snapshot.services.values()) {
    const view = makeServiceView(service, slicesOf(snapshot, serviceKey(service)), node);
    const path = serviceKey(service);
    items.push([path, toBinary(ServiceSchema, encodeService(service, isExtended ? view : undefined))]);
    for (const endpoint of view.endpoints) {
      // A reader that ignores Scopes uses every endpoint for cluster IPs, so the others must be omitted.
      if (!isExtended && !endpoint.scopes.internal) continue;
      const message = isExtended ? encodeExtendedEndpoint(endpoint, service) : encodeKpngEndpoint(endpoint, service);
      items.push([`${path}/${endpoint.key}`, toBinary(EndpointSchema, message)]);
    }
  }
  return digestView(items);
}

export type FanOutServerHandlers = typeof handlers;

answerCalls(handlers);
