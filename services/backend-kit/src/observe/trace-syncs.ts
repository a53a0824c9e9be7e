import { recordSpan, type SpanAttributes, type Tracing } from "@kpng/process/trace/tracing.ts";
import type { Arrival } from "../types/arrival.ts";
import type { SyncObserver, SyncTimes, SyncUpdate } from "../types/sync-update.ts";
import { recordsTrace } from "./records-trace.ts";

export interface TraceSyncsOptions {
  readonly tracing: Tracing;
  readonly nodeName: string;
  /** E.g. "iptables". */
  readonly backend: string;
}

/**
 * A node that takes this long from the watcher's store to its own commit, in milliseconds, is one worth seeing: of such
 * nodes {@link slowFactor} times as many record their part.
 */
const slowMs = 1_000;
const slowFactor = 10;

/**
 * Records what a node did with changes that are traced: `backend.apply`, from the watcher's store to the end of the
 * commit, and below it the stages, which follow each other without a gap.
 *
 * A sync that brings several changes into force is part of the newest one's trace and linked to the others. Of the
 * attempts that fail in a row the first is recorded, and then the one that succeeds.
 */
export class TraceSyncs implements SyncObserver {
  readonly #options: TraceSyncsOptions;
  /** End of the last attempt, if it failed. */
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
    // The first view of a node that starts is nobody's change.
    if (arrival === undefined || arrival.traceparents.length === 0 || isFirst) return;
    const { tracing } = this.#options;
    const { startedAtMs, renderedAtMs, endedAtMs } = times;
    const begunAtMs = Math.max(this.#failedAtMs ?? 0, arrival.storedAtMs || arrival.receivedAtMs);
    // Not after what follows: another machine's clock may be ahead.
    const startMs = Math.min(begunAtMs, startedAtMs);
    const [newest, ...links] = this.#chosen(arrival, endedAtMs - startMs);
    if (newest === undefined) return;
    const span = tracing.begin("backend.apply", { kind: "consumer", parent: newest, links, startMs });
    if (span === undefined) return;
    const parent = span.traceparent;
    // Of several batches the first may have come before the newest change was stored.
    const receivedAtMs = Math.min(Math.max(arrival.receivedAtMs, startMs), startedAtMs);
    const stages = { startMs, receivedAtMs, startedAtMs, renderedAtMs, endedAtMs };
    for (const [name, from, to] of stageNames) {
      recordSpan(tracing, name, { parent, startMs: stages[from], endMs: stages[to], attributes: this.#who() });
    }
    span.end({ endMs: endedAtMs, error, attributes: { ...this.#who(), ...describe(update) } });
  }

  #chosen({ traceparents, tracedNodes }: Arrival, elapsedMs: number): readonly string[] {
    const share = elapsedMs > slowMs ? tracedNodes * slowFactor : tracedNodes;
    return traceparents.filter((one) => recordsTrace(one, this.#options.nodeName, share));
  }

  #who(): SpanAttributes {
    const { nodeName, backend } = this.#options;
    return { "k8s.node.name": nodeName, "kpng.backend": backend };
  }
}

const stageNames = [
  ["backend.receive", "startMs", "receivedAtMs"],
  ["backend.wait", "receivedAtMs", "startedAtMs"],
  ["backend.render", "startedAtMs", "renderedAtMs"],
  ["backend.commit", "renderedAtMs", "endedAtMs"],
] as const;

function describe({ revision, instance, changes, mode, fullReason }: SyncUpdate): SpanAttributes {
  return {
    "kpng.revision": Number(revision),
    "kpng.instance": instance,
    "kpng.changes": changes.length,
    "kpng.sync_mode": mode,
    ...(fullReason === "" ? {} : { "kpng.full_reason": fullReason }),
  };
}
