import { hashText } from "@kpng/model/wire/digest.ts";
import {
  parseTraceparent,
  recordSpan,
  type SpanAttributes,
  type Traceparent,
  type Tracing,
} from "@kpng/process/trace/tracing.ts";
import type { Arrival, SyncObserver, SyncTimes, SyncUpdate } from "../types/sync-update.ts";

interface TraceSyncsOptions {
  readonly tracing: Tracing;
  readonly nodeName: string;
  readonly backend: string;
}

/**
 * A node counts as slow if a change takes longer than this from the watcher's store to the node's commit, in
 * milliseconds. The share of slow nodes that record their part of a trace is {@link slowFactor} times as high.
 */
const slowMs = 1_000;
const slowFactor = 10;

/**
 * Records this node's part of the OpenTelemetry trace of a change: a span `backend.apply`, from the watcher's store to
 * the end of the commit, with one child span for each stage, without gaps.
 *
 * A sync that applies several changes belongs to the newest change's trace and has links to the others. In a series of
 * failed attempts, only the first one and the final successful one are recorded.
 */
export class TraceSyncs implements SyncObserver {
  readonly #options: TraceSyncsOptions;
  /** End of the last attempt if it failed. */
  #failedAtMs: number | undefined;

  constructor(options: TraceSyncsOptions) {
    this.#options = options;
  }

  succeeded(update: SyncUpdate, times: SyncTimes): void {
    this.#record(update, times);
    this.#failedAtMs = undefined;
  }

  failed(update: SyncUpdate, reason: string, times: SyncTimes): void {
    if (this.#failedAtMs === undefined) this.#record(update, times, reason);
    this.#failedAtMs = times.endedAtMs;
  }

  #record(update: SyncUpdate, times: SyncTimes, error?: string): void {
    const { arrival, isFirst } = update;
    // The first view after a node's start does not belong to any change.
    if (arrival === undefined || arrival.traceparents.length === 0 || isFirst) return;
    const { tracing, nodeName, backend } = this.#options;
    const { startedAtMs, renderedAtMs, endedAtMs } = times;
    const begunAtMs = Math.max(this.#failedAtMs ?? 0, arrival.storedAtMs || arrival.receivedAtMs);
    // Do not start after the next stage begins; the watcher's clock may be ahead.
    const startMs = Math.min(begunAtMs, startedAtMs);
    const [newest, ...links] = this.#chosen(arrival, endedAtMs - startMs);
    if (newest === undefined) return;
    const span = tracing.begin("backend.apply", { kind: "consumer", parent: newest, links, startMs });
    if (span === undefined) return;
    const parent = span.traceparent;
    const attributes = { "k8s.node.name": nodeName, "kpng.backend": backend };
    // The first of several merged batches may have arrived before the newest change was stored.
    const receivedAtMs = Math.min(Math.max(arrival.receivedAtMs, startMs), startedAtMs);
    const stages = { startMs, receivedAtMs, startedAtMs, renderedAtMs, endedAtMs };
    for (const [name, from, to] of stageNames) {
      recordSpan(tracing, name, { parent, startMs: stages[from], endMs: stages[to], attributes });
    }
    span.end({ endMs: endedAtMs, error, attributes: { ...attributes, ...describe(update) } });
  }

  #chosen({ traceparents, tracedNodes }: Arrival, elapsedMs: number): readonly string[] {
    const share = elapsedMs > slowMs ? tracedNodes * slowFactor : tracedNodes;
    return traceparents.filter((one) => recordsTrace(one, this.#options.nodeName, share));
  }
}

const stageNames = [
  ["backend.receive", "startMs", "receivedAtMs"],
  ["backend.wait", "receivedAtMs", "startedAtMs"],
  ["backend.render", "startedAtMs", "renderedAtMs"],
  ["backend.commit", "renderedAtMs", "endedAtMs"],
] as const;

function describe({ revision, instance, touched, mode, fullReason }: SyncUpdate): SpanAttributes {
  return {
    "kpng.revision": Number(revision),
    "kpng.instance": instance,
    "kpng.services": touched.size,
    "kpng.sync_mode": mode,
    ...(fullReason === "" ? {} : { "kpng.full_reason": fullReason }),
  };
}

/**
 * Returns true if this node records its part of a trace. The fraction `share` of all nodes does (TracedNodes in the
 * message EmptyOp); a hash of trace and node decides, so that different nodes record different traces.
 */
export function recordsTrace(traceparent: Traceparent, nodeName: string, share: number): boolean {
  const traceId = parseTraceparent(traceparent)?.traceId;
  if (traceId === undefined) return false;
  return share >= 1 || Number(hashText(`${traceId} ${nodeName}`)) / 2 ** 64 < share;
}
