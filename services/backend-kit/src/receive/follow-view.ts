import { Reconnect } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { ViewState } from "../state/view-state.ts";
import { BackendError } from "../types/backend-error.ts";
import type { ViewUpdate } from "../types/sync-update.ts";
import { HeldItems } from "./held-items.ts";
import { watchBatches } from "./watch-batches.ts";
import type { WatchOptions } from "./watch-options.ts";

/** Options of {@link followView}. */
export interface FollowOptions extends WatchOptions {
  readonly log: Log;
  /** Delay before the first attempt to reopen a lost stream, in milliseconds; grows as in `Reconnect`. Default 1000. */
  readonly errorDelayMs?: number | undefined;
  /** Called after each batch, and at the end of each stream with the reason. */
  readonly onConnection?: ((state: ConnectionState) => void) | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/** State of the connection to the watcher, for health and metrics. */
export type ConnectionState =
  /** A batch was applied up to this revision. */
  | { readonly kind: "synced"; readonly revision: bigint }
  /**
   * The digest that the watcher sent is not that of the received view. The whole view is requested again; if the view
   * was whole already, it is used as it is.
   */
  | { readonly kind: "diverged" }
  /** A state older than the one before was accepted, because no watcher offered a newer one. */
  | { readonly kind: "older" }
  /** The watcher asked the client to reconnect to another replica (moved), or is busy (refused). Neither is a fault. */
  | { readonly kind: "moved" | "refused"; readonly reason: string }
  /** The watcher offered a state that is older than the one before. It is not applied; another watcher is tried. */
  | { readonly kind: "behind"; readonly reason: string }
  | { readonly kind: "lost"; readonly reason: string };

/**
 * Yields the view of a node (its Services and endpoints) after each batch, from one stream after another. `backendTask`
 * passes the views to the backend's sync loop.
 *
 * When a stream ends, the next one is opened after a random delay that doubles up to 30 s, after the time that the
 * watcher asked for, or every second while a unix socket has no listener. The view is kept meanwhile. The new stream
 * starts with digests of it, and the watcher answers with the differences. A Go watcher sends the whole view instead,
 * which is compared with the old one here: the yielded changes are always the real differences.
 *
 * Ends when `signal` aborts; never throws.
 */
export async function* followView(options: FollowOptions, signal: AbortSignal): AsyncGenerator<ViewUpdate, void, void> {
  const { log, errorDelayMs = 1_000, onConnection, wait = waitMs, random } = options;
  const reconnect = new Reconnect({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs), random });
  const state = new ViewState(options.nodeName);
  const held = new HeldItems();
  while (!signal.aborted) {
    reconnect.opening();
    try {
      for await (const batch of watchBatches({ ...options, held }, signal)) {
        if (batch.isDigestWrong === true) {
          onConnection?.({ kind: "diverged" });
          log.error("watcher sent a whole view with a wrong digest: using the view, ignoring further digests", {
            revision: Number(batch.revision),
          });
        }
        if (batch.isOlder === true) {
          onConnection?.({ kind: "older" });
          log.error("older state accepted: no watcher offered a newer one", { revision: Number(batch.revision) });
        }
        const update = state.apply(batch);
        // Only now: if this state is invalid, it must not make a valid one count as older.
        batch.applied?.();
        reconnect.progressed();
        onConnection?.({ kind: "synced", revision: batch.revision });
        yield update;
      }
    } catch (error) {
      // After a faulty stream the next one must bring the whole view.
      const code = error instanceof BackendError ? error.code : undefined;
      if (code !== "STREAM_LOST" && code !== "STATE_BEHIND") held.clear();
      if (code === "VIEW_DIVERGED") onConnection?.({ kind: "diverged" });
      const reason = reasonOf(error);
      const end = reconnect.ended(error);
      const kind = code === "STATE_BEHIND" ? "behind" : end.kind;
      const isOwnDelay = kind === "behind" || kind === "lost";
      const delayMs = isOwnDelay ? (options.gate?.retryDelayMs(end.delayMs, random) ?? end.delayMs) : end.delayMs;
      onConnection?.({ kind, reason });
      log[kind === "lost" ? "error" : "info"](`stream ${kind}`, { reason, delayMs });
      await wait(delayMs, signal);
    }
  }
}
