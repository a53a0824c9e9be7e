import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/**
 * How much a sync must examine.
 *
 * - full: everything, because the installed rules are unknown or not trusted: after the start, after a failure, and for
 *   a watcher's first view after a saved one.
 * - partial: only the `touched` Services; all others are unchanged since the last success.
 */
export type SyncMode = "full" | "partial";

export interface SyncUpdate extends ViewUpdate {
  readonly mode: SyncMode;
  /**
   * Why the sync is full: "start", "failure", or the reason given with a view; "" if the sync is partial. After
   * "failure", service proxies compare only the families that failed (`servicesOf` in proxy-task.ts).
   */
  readonly fullReason: string;
}

/**
 * Puts a view into effect. Resolves when that is done; rejects or throws if it failed. `stages` is for backends that
 * report how long rendering and committing took.
 */
export type Sync = (update: SyncUpdate, signal: AbortSignal, stages: SyncStages) => void | Promise<void>;

export interface SyncStages {
  /**
   * Reports that the changes are computed and the commit begins. Only the first call counts; without a call, all time
   * counts as commit.
   */
  committing(): void;
}

/** Start of each stage of a sync, in milliseconds since 1970, with fractions. The stages follow each other directly. */
export interface SyncTimes {
  /**
   * Receipt of the first sync marker that the sync puts into effect; the start of the sync if no received update caused
   * it.
   */
  readonly receivedAtMs: number;
  readonly startedAtMs: number;
  readonly renderedAtMs: number;
  /** Also the time of a failure. */
  readonly endedAtMs: number;
}

/** Observes the steps of a sync loop, for metrics, health, or the view on disk. Its methods must not throw. */
export interface SyncObserver {
  /** Called when an update with changes waits to be synced. */
  queued?(update: ViewUpdate): void;
  /** Called for an update without changes, which causes no sync. */
  settled?(update: ViewUpdate): void;
  started?(update: SyncUpdate): void;
  succeeded?(update: SyncUpdate, times: SyncTimes): void;
  failed?(update: SyncUpdate, reason: string, times: SyncTimes): void;
}

/** Number of Services and of endpoints that were put or deleted, for kube-proxy's metrics. */
export interface ChangeCounts {
  readonly services: number;
  readonly endpoints: number;
}

/** A view, and its difference from the previous one. */
export interface ViewUpdate {
  /** Immutable; unchanged Services are the same objects as in the previous view. */
  readonly view: NodeView;
  /**
   * Services that differ from the previous view, including deleted ones; empty if a new stream brought the same view.
   * In a `SyncUpdate`, the Services that may differ from the view of the last success.
   */
  readonly touched: ReadonlySet<ServiceKey>;
  readonly counts: ChangeCounts;
  /** True for the first view, which touches all of its Services. In a `SyncUpdate`: true until a sync has succeeded. */
  readonly isFirst: boolean;
  /** Revision of the watcher's store; 0 from a Go watcher. */
  readonly revision: bigint;
  /** Watcher run to which `revision` belongs; "" from a Go watcher. */
  readonly instance: string;
  /**
   * True for the saved view, which is used while no watcher answers. Rules that are already installed are at least as
   * new as this view.
   */
  readonly isFromDisk?: boolean | undefined;
  /** True for a saved view from an earlier boot: installed rules may be even older. */
  readonly isAfterReboot?: boolean | undefined;
  /** Undefined if nothing was received, as for a view from disk or a requested sync of the current view. */
  readonly arrival?: Arrival | undefined;
}

/**
 * When the changes of a view were written, stored and received. Metrics, traces and acknowledgements use these times to
 * report how long a change took.
 */
export interface Arrival {
  /** Receipt of the first of the merged sync markers, in milliseconds since 1970, with fractions. */
  readonly receivedAtMs: number;
  /**
   * When the watcher's store received the newest change, by the watcher's clock, in the same unit; 0 if the watcher
   * does not say.
   */
  readonly storedAtMs: number;
  /**
   * When the changed objects were written, in milliseconds since 1970; at most {@link maxTriggers} times, and those of
   * the newest updates.
   */
  readonly triggeredAtMs: readonly number[];
  /** W3C traceparents of the changes, newest first; at most {@link maxTraces}. */
  readonly traceparents: readonly string[];
  /**
   * Number of nodes behind the stream that record their part of each trace. For a node, whose stream is its own, it is
   * the probability that this node records; 1 or more means always.
   */
  readonly tracedNodes: number;
}

/** Bounds of merged arrivals: while syncs fail, updates are merged without limit. */
const [maxTriggers, maxTraces] = [100, 32];

export function mergeArrivals(older: Arrival | undefined, newer: Arrival | undefined): Arrival | undefined {
  if (older === undefined || newer === undefined) return newer ?? older;
  return {
    receivedAtMs: older.receivedAtMs,
    storedAtMs: newer.storedAtMs,
    triggeredAtMs: [...newer.triggeredAtMs, ...older.triggeredAtMs].slice(0, maxTriggers),
    traceparents: [...new Set([...newer.traceparents, ...older.traceparents])].slice(0, maxTraces),
    tracedNodes: Math.max(older.tracedNodes, newer.tracedNodes),
  };
}
