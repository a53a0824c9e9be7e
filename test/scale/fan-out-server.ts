import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { growOldGenerationByHalf } from "@kpng/process/run/v8-heap.ts";
import { readServerTls } from "@kpng/process/tls-files.ts";
import { Registry } from "prom-client";
import { viewTargetIn } from "../../services/watcher/src/items/view-target.ts";
import type { ObjectChange } from "../../services/watcher/src/source/source.ts";
import { Store } from "../../services/watcher/src/store/store.ts";
import { viewBuckets } from "../../services/watcher/src/stream/delta/resume-view.ts";
import { observeConvergence } from "../../services/watcher/src/stream/session/convergence.ts";
import { Subscribers } from "../../services/watcher/src/stream/session/subscribers.ts";
import { serveStore, type TestServer } from "../../services/watcher/src/testing/serve-store.ts";
import { type MadeChange, summarize } from "./batch-log.ts";
import { answerCalls } from "./calls.ts";
import { expectedView } from "./expected-view.ts";
import { monotonicMs } from "./monotonic.ts";
import { endpointChange, makeScript, type ScriptName } from "./scripts.ts";
import { cpuMs, type ServerUsage, serverUsage } from "./server-usage.ts";
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
let metrics: TestServer["metrics"] | undefined;

interface Churn {
  readonly timer: NodeJS.Timeout;
  readonly changes: MadeChange[];
  readonly sinceRevision: number;
  /** Number of settled nodes, the first ones. */
  readonly settled: number;
  /** CPU time of the process at each change, in milliseconds. */
  readonly changedCpuMs: number[];
  /** For each batch that was written to a settled stream: the age of its oldest change, in milliseconds. */
  readonly writtenAges: number[];
  /**
   * The same in CPU time of the process: on a core that it has to itself, while it is busy. Without the time that other
   * processes take; with that of V8's threads, which share the core.
   */
  readonly writtenCpuAges: number[];
}

subscribers.observe({
  sent: ({ nodeName }, { after }) => {
    if (churn === undefined || Number(nodeName.slice("node-".length)) >= churn.settled) return;
    // Each change has one revision.
    const index = Math.max(0, after - churn.sinceRevision);
    const [oldest, changedCpuMs] = [churn.changes[index], churn.changedCpuMs[index]];
    if (oldest === undefined || changedCpuMs === undefined) return;
    churn.writtenAges.push(monotonicMs() - oldest.atMs);
    churn.writtenCpuAges.push(cpuMs() - changedCpuMs);
  },
});

export interface StartOptions {
  readonly shape: SyntheticShape;
  readonly tls?: Parameters<typeof readServerTls>[1];
  /** See ServeOptions. */
  readonly maxWaiting?: number | undefined;
  /** False for a watcher whose source never lists the cluster, so that all streams wait. Default true. */
  readonly hasLists?: boolean | undefined;
}

export interface ScriptResult {
  readonly changes: readonly MadeChange[];
  /** Revision of the store before the first change. */
  readonly sinceRevision: number;
  /** CPU time at the first step. */
  readonly cpuMs: number;
  /** Delay of the last step, because the server was busy. */
  readonly behindMs: number;
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
    if (options.hasLists !== false) store.replace(makeCluster(shape));
    const tls = options.tls === undefined ? undefined : readServerTls("", options.tls);
    const { maxWaiting } = options;
    const server = await serveStore(store, { subscribers, maxWaiting, ...(tls === undefined ? {} : { tls }) });
    metrics = server.metrics;
    return { address: server.address };
  },

  /** Changes one endpoint. */
  change(_: Record<never, never>): MadeChange & { readonly cpuMs: number } {
    const change = endpointChange(changesMade, shape);
    changesMade += 1;
    return { cpuMs: cpuMs(), ...apply([change]) };
  },

  /** Changes one endpoint after the other, until `endChurn`. A busy server catches up. */
  churn({ changesPerSecond, settled }: { readonly changesPerSecond: number; readonly settled: number }): void {
    const startedAtMs = monotonicMs();
    const changes: MadeChange[] = [];
    const changedCpuMs: number[] = [];
    const timer = setInterval(() => {
      const due = Math.floor(((monotonicMs() - startedAtMs) / 1_000) * changesPerSecond);
      while (changes.length < due) {
        changedCpuMs.push(cpuMs());
        changes.push(apply([endpointChange(changesMade, shape)]));
        changesMade += 1;
      }
    }, 5);
    churn = {
      timer,
      changes,
      sinceRevision: store.snapshot.revision,
      settled,
      changedCpuMs,
      writtenAges: [],
      writtenCpuAges: [],
    };
  },

  /** `written` are the ages at which the batches of settled nodes were written. */
  endChurn(_: Record<never, never>) {
    const { timer, changes = [], sinceRevision = 0, writtenAges = [], writtenCpuAges = [] } = churn ?? {};
    clearInterval(timer);
    const sorted = (ages: number[]) => ages.sort((a, b) => a - b);
    const [written, writtenCpu] = [summarize(sorted(writtenAges)), summarize(sorted(writtenCpuAges))];
    return { changes, sinceRevision, written, writtenCpu };
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
    let behindMs = 0;
    for (const [index, step] of steps.entries()) {
      const early = dueAtMs(index) - monotonicMs();
      // A busy server is late; it still needs the event loop between two steps.
      await (early > 0 ? sleep(early) : turn());
      if (monotonicMs() > startedAtMs + timeoutMs) break;
      behindMs = Math.max(0, monotonicMs() - dueAtMs(index));
      changes.push(apply(step));
    }
    changes.push(apply([nextMarker()]));
    return { changes, sinceRevision, cpuMs: beganCpuMs, behindMs };
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

  /** Number of streams that wait for their first batch. */
  async waiting(_: Record<never, never>): Promise<number> {
    const values = (await metrics?.getSingleMetric("kpng_admission_beginning")?.get())?.values ?? [];
    return values.reduce((sum, { value }) => sum + value, 0);
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

export type FanOutServerHandlers = typeof handlers;

answerCalls(handlers);
