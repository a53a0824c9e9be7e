import { Reconnect } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { ViewState } from "../state/view-state.ts";
import { BackendError } from "../types/backend-error.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { HeldItems } from "./held-items.ts";
import { watchBatches } from "./watch-batches.ts";
import type { WatchOptions } from "./watch-options.ts";

export interface FollowOptions extends WatchOptions {
  readonly log: Log;
  /** First delay before a lost stream is opened again, in milliseconds; how it grows: `Reconnect`. Default 1000. */
  readonly errorDelayMs?: number | undefined;
  /** Told of each sync marker, and of each end of a stream with its reason. */
  readonly onConnection?: ((state: ConnectionState) => void) | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

export type ConnectionState =
  | { readonly kind: "synced"; readonly revision: bigint }
  /** The view is not the one that the watcher means: it is asked for as a whole or, if it is whole, taken as it is. */
  | { readonly kind: "diverged" }
  /** A watcher asked to go on elsewhere, or is busy: none of this is a fault. */
  | { readonly kind: "moved" | "refused"; readonly reason: string }
  | { readonly kind: "lost"; readonly reason: string };

/**
 * Yields the view of a node after each sync marker, for ever: a lost stream is opened again, with delays that double
 * and that differ between nodes, or each second while the unix socket has no listener, or when the watcher says.
 *
 * A loss changes nothing in what was yielded: the view is held, the next watcher is told what is held and sends what
 * differs; one that cannot (a Go one) sends everything, which is compared, so that only what really differs comes out.
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
      let isFirstOfStream = true;
      for await (const batch of watchBatches({ ...options, held }, signal)) {
        if (isFirstOfStream && !batch.isReset && !batch.isResumed) {
          throw new BackendError("BAD_STREAM", "the stream began without Reset");
        }
        isFirstOfStream = false;
        if (batch.isDoubtful === true) {
          onConnection?.({ kind: "diverged" });
          log.error("the watcher's digest is not that of the view it sent", { revision: Number(batch.revision) });
        }
        const update = state.apply(batch);
        reconnect.progressed();
        onConnection?.({ kind: "synced", revision: batch.revision });
        yield update;
      }
    } catch (error) {
      // What a faulty stream brought is no ground to go on from.
      if (!(error instanceof BackendError && error.code === "STREAM_LOST")) held.clear();
      if (error instanceof BackendError && error.code === "VIEW_DIVERGED") onConnection?.({ kind: "diverged" });
      const reason = reasonOf(error);
      const { kind, delayMs } = reconnect.ended(error);
      onConnection?.({ kind, reason });
      log[kind === "lost" ? "error" : "info"](`stream ${kind}`, { reason, delayMs });
      await wait(delayMs, signal);
    }
  }
}
