import type { ViewUpdate } from "../state/view-state.ts";

/**
 * How much a sync must look at.
 *
 * - full: everything, because what stands in the kernel is not known or not trusted: after the start, after a failure,
 *   after the longest interval, and when somebody asked for it (drift).
 * - partial: what `changes` names; the rest is as the last success left it.
 */
export type SyncMode = "full" | "partial";

/** What a backend is to make true. */
export interface SyncUpdate extends ViewUpdate {
  readonly mode: SyncMode;
  /** Why the sync is full, for the log: "start", "failure", "interval", or what was asked for; "" if it is partial. */
  readonly fullReason: string;
}

/**
 * Makes the world agree with a view. May take its time; resolves when it is done, rejects or throws if it failed.
 * `stages` is for those that want to show where the time goes.
 */
export type Sync = (update: SyncUpdate, signal: AbortSignal, stages: SyncStages) => void | Promise<void>;

/** Told by a sync how far it is. */
export interface SyncStages {
  /** It is known what to tell the kernel, and it is told now. The first call counts; without any, all time is commit. */
  committing(): void;
}

/** When the stages of a sync began; in milliseconds since 1970, with fractions. They follow each other without a gap. */
export interface SyncTimes {
  /** Receipt of the first marker that the sync brings into force; the start of one that nothing received has caused. */
  readonly receivedAtMs: number;
  readonly startedAtMs: number;
  /** Rendered, and so the beginning of the commit. */
  readonly renderedAtMs: number;
  /** Committed, or failed. */
  readonly endedAtMs: number;
}

/** Sees what a sync loop does: metrics, health, the view on disk. Must not throw. */
export interface SyncObserver {
  /** An update with changes waits to be synced. */
  queued?(update: ViewUpdate): void;
  /** What was queued proved to change nothing: there is no sync. */
  settled?(update: ViewUpdate): void;
  started?(update: SyncUpdate): void;
  succeeded?(update: SyncUpdate, times: SyncTimes): void;
  failed?(update: SyncUpdate, reason: string, times: SyncTimes): void;
}
