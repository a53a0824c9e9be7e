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

/** Makes the world agree with a view. May take its time; resolves when it is done, rejects or throws if it failed. */
export type Sync = (update: SyncUpdate, signal: AbortSignal) => void | Promise<void>;

/** Sees what a sync loop does: metrics, health, the view on disk. Must not throw. */
export interface SyncObserver {
  /** An update with changes waits to be synced. */
  queued?(update: ViewUpdate): void;
  /** What was queued proved to change nothing: there is no sync. */
  settled?(): void;
  started?(update: SyncUpdate): void;
  succeeded?(update: SyncUpdate, elapsedMs: number): void;
  failed?(update: SyncUpdate, reason: string): void;
}
