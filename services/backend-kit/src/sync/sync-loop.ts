import { Backoff } from "@kpng/process/backoff.ts";
import { realClock } from "@kpng/process/clock.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { traceFields } from "@kpng/process/trace/traceparent.ts";
import { Wakeup, type waitMs } from "@kpng/process/wait.ts";
import type { Sync, SyncObserver, SyncTimes, SyncUpdate } from "../types/sync-update.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import type { FullSyncRequests } from "./full-sync-requests.ts";
import { nextTurn } from "./next-turn.ts";
import { Pacer } from "./pacer.ts";
import { PendingUpdate } from "./pending-update.ts";
import { StageClock } from "./stage-clock.ts";

/** When a sync runs; every field may be left out. */
export interface SyncPace {
  /**
   * Shortest time from the end of a sync to the start of the next, in milliseconds; what arrives meanwhile is merged.
   * Default 0.
   */
  readonly minIntervalMs?: number | undefined;
  /** Longest time from the end of a full sync to the next one, in milliseconds; 0 for none. Default 0. */
  readonly maxIntervalMs?: number | undefined;
  /** Where the backend itself asks for full syncs. */
  readonly fullSyncRequests?: FullSyncRequests | undefined;
  /** Told of each step of the loop. */
  readonly observers?: readonly SyncObserver[] | undefined;
  /** Default performance.now. */
  readonly nowMs?: (() => number) | undefined;
}

export interface SyncLoopOptions extends SyncPace {
  /** Name of the backend, also among the parts of the process's health. */
  readonly name: string;
  readonly sync: Sync;
  readonly log: Log;
  readonly health: Health;
  /** First delay after a failed sync, in milliseconds; it doubles up to 30 s. Default 1000. */
  readonly errorDelayMs?: number | undefined;
  /** True to end after the first success. */
  readonly isOnce?: boolean | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
}

interface Failure {
  readonly cause: unknown;
  readonly times: SyncTimes;
}

/** What came of an attempt to sync. */
type Outcome =
  | { readonly kind: "nothing" }
  | { readonly kind: "synced" }
  | { readonly kind: "failed"; readonly delayMs: number };

/**
 * Calls `sync` with the newest view: never two calls at once, never a queue of more than one, and again with backoff
 * after a failure, by then with what is newest and in full.
 */
export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #observers: readonly SyncObserver[];
  readonly #pending = new PendingUpdate();
  readonly #arrived = new Wakeup();

  constructor(options: SyncLoopOptions) {
    this.#options = options;
    this.#observers = options.observers ?? [];
    options.health.setWaiting(options.name, "not yet synced");
    options.fullSyncRequests?.onRequest(() => this.#arrived.wake());
  }

  /** Takes an update, merging it with one that still waits. */
  offer(update: ViewUpdate): void {
    this.#pending.add(update);
    if (update.changes.length > 0) for (const observer of this.#observers) observer.queued?.(update);
    this.#arrived.wake();
  }

  /** Runs until `signal` aborts, or after the first success with `isOnce`; lets a call that runs come to its end. */
  async run(signal: AbortSignal): Promise<void> {
    const { isOnce = false, errorDelayMs = 1_000 } = this.#options;
    const { minIntervalMs = 0, maxIntervalMs = 0, wait = realClock.wait, nowMs = realClock.nowMs } = this.#options;
    const backoff = new Backoff({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs) });
    const pacer = new Pacer(minIntervalMs, maxIntervalMs, { nowMs, wait });
    while (!signal.aborted) {
      this.#requireFull(pacer);
      if (!this.#pending.isWaiting) {
        await pacer.waitForWork(this.#arrived, signal);
        continue;
      }
      await pacer.waitForMin(signal);
      if (signal.aborted) return;
      this.#requireFull(pacer);
      const outcome = await this.#syncPending(pacer, backoff, signal);
      if (outcome.kind === "synced" && isOnce) return;
      if (outcome.kind === "failed") await wait(outcome.delayMs, signal);
    }
  }

  /**
   * Syncs what waits. Not in `run`, because a function that waits keeps its variables, and the first update is the
   * whole view once more.
   */
  async #syncPending(pacer: Pacer, backoff: Backoff, signal: AbortSignal): Promise<Outcome> {
    const { name, log, health } = this.#options;
    const delivery = this.#pending.take();
    if (delivery === undefined) return { kind: "nothing" };
    if (delivery.kind === "unneeded") {
      for (const observer of this.#observers) observer.settled?.(delivery.update);
      return { kind: "nothing" };
    }
    if (delivery.update.mode === "full") this.#options.fullSyncRequests?.clear();
    const failure = await this.#syncOnce(delivery.update, signal);
    pacer.ended(failure === undefined && delivery.update.mode === "full");
    if (failure === undefined) {
      delivery.delivered();
      backoff.reset();
      health.setReady(name);
      return { kind: "synced" };
    }
    delivery.failed();
    const reason = reasonOf(failure.cause);
    health.setFailing(name, reason);
    for (const observer of this.#observers) observer.failed?.(delivery.update, reason, failure.times);
    const delayMs = backoff.nextMs();
    log.error("sync failed", { backend: name, revision: Number(delivery.update.revision), reason, delayMs });
    return { kind: "failed", delayMs };
  }

  #requireFull(pacer: Pacer): void {
    const reason = this.#options.fullSyncRequests?.reason ?? "";
    if (reason !== "") this.#pending.requireFull(reason);
    if (pacer.isFullDue) this.#pending.requireFull("interval");
  }

  async #syncOnce(update: SyncUpdate, signal: AbortSignal): Promise<Failure | undefined> {
    const { name, sync, log } = this.#options;
    // Timers and sockets come first: under a stream of changes health must still answer between two syncs.
    await nextTurn();
    for (const observer of this.#observers) observer.started?.(update);
    const stages = new StageClock(update.arrival?.receivedAtMs);
    try {
      await sync(update, signal, stages);
    } catch (cause) {
      return { cause, times: stages.end() };
    }
    const times = stages.end();
    const elapsedMs = times.endedAtMs - times.startedAtMs;
    for (const observer of this.#observers) observer.succeeded?.(update, times);
    log.debug("sync complete", {
      backend: name,
      mode: update.mode,
      ...(update.mode === "full" ? { fullReason: update.fullReason } : {}),
      revision: Number(update.revision),
      changes: update.changes.length,
      waitMs: Math.round(times.startedAtMs - times.receivedAtMs),
      renderMs: Math.round(times.renderedAtMs - times.startedAtMs),
      commitMs: Math.round(times.endedAtMs - times.renderedAtMs),
      elapsedMs: Math.round(elapsedMs),
      ...traceFields(update.arrival?.traceparents[0]),
    });
    return undefined;
  }
}
