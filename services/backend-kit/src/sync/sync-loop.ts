import { Backoff } from "@kpng/process/backoff.ts";
import type { Health } from "@kpng/process/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import type { BackendMetrics } from "../observe/backend-metrics.ts";
import type { ViewUpdate } from "../state/view-state.ts";
import { PendingUpdate } from "./pending-update.ts";

/** Makes the world agree with a view. May take its time; resolves when it is done, rejects or throws if it failed. */
export type Sync = (update: ViewUpdate, signal: AbortSignal) => void | Promise<void>;

export interface SyncLoopOptions {
  /** Name of the backend, also among the parts of the process's health. */
  readonly name: string;
  readonly sync: Sync;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: BackendMetrics;
  /** First delay after a failed sync, in milliseconds; it doubles up to 30 s. Default 1000. */
  readonly errorDelayMs?: number | undefined;
  /** True to end after the first success. */
  readonly isOnce?: boolean | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
}

/**
 * Calls `sync` with the newest view: never two calls at once, never a queue of more than one, and again with backoff
 * after a failure, by then with what is newest.
 */
export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #pending = new PendingUpdate();
  readonly #arrived = new Wakeup();

  constructor(options: SyncLoopOptions) {
    this.#options = options;
    options.health.setWaiting(options.name, "not yet synced");
  }

  /** Takes an update, merging it with one that still waits. */
  offer(update: ViewUpdate): void {
    this.#pending.add(update);
    this.#arrived.wake();
  }

  /** Runs until `signal` aborts, or after the first success with `isOnce`; lets a call that runs come to its end. */
  async run(signal: AbortSignal): Promise<void> {
    const { name, isOnce = false, errorDelayMs = 1_000, wait = waitMs, log, health } = this.#options;
    const backoff = new Backoff({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs) });
    while (!signal.aborted) {
      const delivery = this.#pending.take();
      if (delivery === undefined) {
        await this.#arrived.wait(signal);
        continue;
      }
      const error = await this.#syncOnce(delivery.update, signal);
      if (error === undefined) {
        delivery.delivered();
        backoff.reset();
        health.setReady(name);
        if (isOnce) return;
        continue;
      }
      delivery.failed();
      const reason = reasonOf(error.cause);
      health.setFailing(name, reason);
      const delayMs = backoff.nextMs();
      log.error("sync failed", { backend: name, revision: Number(delivery.update.revision), reason, delayMs });
      await wait(delayMs, signal);
    }
  }

  async #syncOnce(update: ViewUpdate, signal: AbortSignal): Promise<{ readonly cause: unknown } | undefined> {
    const { name, sync, log, metrics } = this.#options;
    const startMs = performance.now();
    try {
      await sync(update, signal);
    } catch (cause) {
      metrics.syncs.inc({ result: "failed" });
      return { cause };
    }
    const elapsedMs = performance.now() - startMs;
    metrics.syncs.inc({ result: "ok" });
    metrics.syncSeconds.observe(elapsedMs / 1_000);
    metrics.revision.set(Number(update.revision));
    log.debug("sync complete", {
      backend: name,
      revision: Number(update.revision),
      changes: update.changes.length,
      elapsedMs: Math.round(elapsedMs),
    });
    return undefined;
  }
}
