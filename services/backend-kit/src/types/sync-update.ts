import type { NodeView, ViewChange } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/**
 * How much a sync must examine.
 *
 * - full: everything, because the installed rules are unknown or not trusted: after the start, after a failure, and on
 *   request (`SyncRequests`).
 * - partial: the `touched` Services; the rest is unchanged since the last success.
 */
export type SyncMode = "full" | "partial";

/** A view that a backend must put into effect. */
export interface SyncUpdate extends ViewUpdate {
  readonly mode: SyncMode;
  /** Why the sync is full, for the log: "start", "failure", or the reason of a request; "" if partial. */
  readonly fullReason: string;
}

/**
 * Puts a view into effect. Resolves when that is done; rejects or throws if it failed. `stages` is for backends that
 * report how long rendering and committing took.
 */
export type Sync = (update: SyncUpdate, signal: AbortSignal, stages: SyncStages) => void | Promise<void>;

/** Receives the progress of a sync. */
export interface SyncStages {
  /** The changes are computed, and the commit begins. The first call counts; without a call, all time is commit. */
  committing(): void;
}

/** Start of each stage of a sync, in milliseconds since 1970, with fractions. The stages follow each other directly. */
export interface SyncTimes {
  /** Receipt of the first sync marker that the sync puts into effect; the start if nothing received has caused it. */
  readonly receivedAtMs: number;
  readonly startedAtMs: number;
  /** End of rendering, start of the commit. */
  readonly renderedAtMs: number;
  /** End of the commit, or failure. */
  readonly endedAtMs: number;
}

/** Follows the steps of a sync loop: metrics, health, the view on disk. Must not throw. */
export interface SyncObserver {
  /** An update with changes waits to be synced. */
  queued?(update: ViewUpdate): void;
  /** An update without changes: there is no sync. */
  settled?(update: ViewUpdate): void;
  started?(update: SyncUpdate): void;
  succeeded?(update: SyncUpdate, times: SyncTimes): void;
  failed?(update: SyncUpdate, reason: string, times: SyncTimes): void;
}

/** Numbers of Services and endpoints that were put or deleted, for kube-proxy's metrics. */
export interface ChangeCounts {
  readonly services: number;
  readonly endpoints: number;
}

/** A view after a batch, and its difference from the previous view. */
export interface ViewUpdate {
  /** Immutable; Services that did not change are the same objects as in the view before. */
  readonly view: NodeView;
  /**
   * Services that differ from the previous view, deleted ones included; empty if a new stream brought the same view. In
   * a `SyncUpdate`: Services that may differ from the view of the last success.
   */
  readonly touched: ReadonlySet<ServiceKey>;
  readonly counts: ChangeCounts;
  /** True for the first view, which touches all of its Services. */
  readonly isFirst: boolean;
  /** Revision of the watcher's store; 0 from a Go watcher. */
  readonly revision: bigint;
  /** Run of the watcher that `revision` belongs to; "" from a Go watcher. */
  readonly instance: string;
  /**
   * True for the saved view, used while no watcher answers. Rules that are already installed are at least as new as
   * this view.
   */
  readonly isFromDisk?: boolean | undefined;
  /** True for a saved view of an earlier boot: rules that are installed may be even older. */
  readonly isAfterReboot?: boolean | undefined;
  /** Undefined if nothing was received: a view from disk, a full sync of the current view. */
  readonly arrival?: Arrival | undefined;
}

/** The changes up to one sync marker of the stream, applied together. It is not yet compared with the view. */
export interface Batch {
  /** True if `changes` is the whole view and replaces everything received before. */
  readonly isReset: boolean;
  /** True for the first batch of a stream that continues from the view of an earlier stream. */
  readonly isResumed?: boolean | undefined;
  /**
   * True if this whole view does not have the digest that the watcher sent. Nothing can have been lost before a whole
   * view, so the digest is wrong, and `watchBatches` checks no further digest of the stream.
   */
  readonly isDigestWrong?: boolean | undefined;
  /** True if the state is older than the one before, and no watcher offered a newer one for some time. */
  readonly isOlder?: boolean | undefined;
  readonly changes: readonly ViewChange[];
  /** Revision of the watcher's store; 0 from a Go watcher. */
  readonly revision: bigint;
  /** Run of the watcher that `revision` belongs to; "" from a Go watcher. */
  readonly instance: string;
  /**
   * To be called when the batch was applied: from then on, older states are refused. Undefined if the batch was not
   * received from a watcher.
   */
  readonly applied?: (() => void) | undefined;
  /** Undefined if the batch was not received from a watcher. */
  readonly arrival?: Arrival | undefined;
}

/**
 * When the changes of a view were written, stored and received. Metrics, traces and acknowledgements measure from these
 * times how long a change took.
 */
export interface Arrival {
  /** Receipt of the first of the merged sync markers, in milliseconds since 1970, with fractions. */
  readonly receivedAtMs: number;
  /** When the watcher's store had the newest change, by its clock, in the same unit; 0 if the watcher does not say. */
  readonly storedAtMs: number;
  /** When the changed objects were written, in milliseconds since 1970; the newest {@link maxTriggers}. */
  readonly triggeredAtMs: readonly number[];
  /** Traces of the changes as W3C traceparent, newest first; at most {@link maxTraces}. */
  readonly traceparents: readonly string[];
  /** Share of the nodes that record their part of each trace, from 0; all nodes at 1 and above. */
  readonly tracedNodes: number;
}

const maxTriggers = 100;
const maxTraces = 32;

/** Merges two arrivals whose updates are applied together. */
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
