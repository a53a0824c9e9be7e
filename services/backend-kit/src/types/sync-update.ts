import type { ViewUpdate } from "./view-update.ts";

/**
 * How much a sync must examine.
 *
 * - full: everything, because the installed rules are unknown or not trusted: after the start, after a failure, and on
 *   request (`SyncRequests`).
 * - partial: the Services that `changes` names; the rest is unchanged since the last success.
 */
export type SyncMode = "full" | "partial";

/**
 * A view that a backend must put into effect. `PendingUpdate` makes it from a `ViewUpdate`, and `SyncLoop` passes it to
 * the backend. The types of this file are separate from `sync/`, because observers and backends use them too.
 */
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

/** Receives the progress of a sync; `StageClock` implements it, and rule sets call it. */
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
  /** The queued updates cancel each other out: there is no sync. */
  settled?(update: ViewUpdate): void;
  started?(update: SyncUpdate): void;
  succeeded?(update: SyncUpdate, times: SyncTimes): void;
  failed?(update: SyncUpdate, reason: string, times: SyncTimes): void;
}
