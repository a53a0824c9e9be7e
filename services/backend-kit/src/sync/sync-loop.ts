import { Backoff } from "@kpng/process/backoff.ts";
import { type Clock, realClock } from "@kpng/process/clock.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { traceFields } from "@kpng/process/trace/traceparent.ts";
import { Wakeup, type waitMs } from "@kpng/process/wait.ts";
import type { Sync, SyncObserver, SyncTimes, SyncUpdate } from "../types/sync-update.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { nextTurn } from "./next-turn.ts";
import { Pacer, waitForWork } from "./pacer.ts";
import { PendingUpdate } from "./pending-update.ts";
import { StageClock } from "./stage-clock.ts";
import { SyncRequests } from "./sync-requests.ts";

/** When a sync runs; every field may be left out. */
export interface SyncPace {
  /**
   * Shortest time from the end of a sync to the start of the next, in milliseconds; what arrives meanwhile is merged.
   * Default 0.
   */
  readonly minIntervalMs?: number | undefined;
  /** Work that runs between syncs, in turn with them. Default: none. */
  readonly check?: PeriodicCheck | undefined;
  /** Requests of the backend itself. Default: it makes none. */
  readonly requests?: SyncRequests | undefined;
  /** Told of each step of the loop. */
  readonly observers?: readonly SyncObserver[] | undefined;
  /** Default performance.now. */
  readonly nowMs?: (() => number) | undefined;
}

/** Compares what is installed with what was synced last, and repairs it. */
export interface PeriodicCheck {
  /** Time from the end of a check to the next one, in milliseconds; 0 for checks on request alone. */
  readonly intervalMs: number;
  /** Must not reject. */
  run(signal: AbortSignal): Promise<void>;
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

/** Result of an attempt to sync. */
type Outcome =
  | { readonly kind: "nothing" }
  | { readonly kind: "synced" }
  | { readonly kind: "failed"; readonly delayMs: number };

/**
 * The first check is early: a tool that an earlier, killed process started may still be at work. *Unit:* milliseconds.
 */
const firstCheckMs = 5_000;

/** On a node with very many rules a check takes long. It may take at most a twentieth of the time. */
const restPerCheck = 20;

/**
 * Calls `sync` with the newest view: one call at a time, at most one view waits, and a failed call is repeated with
 * backoff, in full and with the newest view.
 */
export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #observers: readonly SyncObserver[];
  readonly #clock: Clock;
  readonly #pending = new PendingUpdate();
  readonly #requests: SyncRequests;
  readonly #arrived = new Wakeup();

  constructor(options: SyncLoopOptions) {
    const { nowMs = realClock.nowMs, wait = realClock.wait, requests = new SyncRequests() } = options;
    this.#options = options;
    this.#observers = options.observers ?? [];
    this.#clock = { nowMs, wait };
    this.#requests = requests;
    options.health.setWaiting(options.name, "not yet synced");
    requests.onRequest(() => this.#arrived.wake());
  }

  /** Takes an update, merging it with one that still waits. */
  offer(update: ViewUpdate): void {
    this.#pending.add(update);
    if (update.changes.length > 0) for (const observer of this.#observers) observer.queued?.(update);
    this.#arrived.wake();
  }

  /** Runs until `signal` aborts, or after the first success with `isOnce`; lets a call that runs come to its end. */
  async run(signal: AbortSignal): Promise<void> {
    const { isOnce = false, errorDelayMs = 1_000, minIntervalMs = 0 } = this.#options;
    const backoff = new Backoff({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs) });
    const pacer = new Pacer(minIntervalMs, this.#clock);
    this.#requestCheck(firstCheckMs);
    while (!signal.aborted) {
      if (await this.#check(signal)) continue;
      this.#takeRequests();
      if (!this.#pending.isWaiting) {
        await waitForWork(this.#arrived, this.#nextRequestMs, this.#clock, signal);
        continue;
      }
      await pacer.waitForMin(signal);
      if (signal.aborted) return;
      this.#takeRequests();
      const outcome = await this.#syncPending(pacer, backoff, signal);
      if (outcome.kind === "synced" && isOnce) return;
      if (outcome.kind === "failed") await this.#clock.wait(outcome.delayMs, signal);
    }
  }

  /** Infinite before the first success: until then there is nothing that a request could be about. */
  get #nextRequestMs(): number {
    return this.#pending.hasDelivered ? this.#requests.nextAtMs : Number.POSITIVE_INFINITY;
  }

  #takeRequests(): void {
    if (!this.#pending.hasDelivered) return;
    const nowMs = this.#clock.nowMs();
    const reason = this.#requests.take("full", nowMs);
    if (reason !== undefined) this.#pending.requireFull(reason);
    if (this.#requests.take("partial", nowMs) !== undefined) this.#pending.require();
  }

  /** A full sync does what is requested now. */
  #dropRequests(): void {
    const nowMs = this.#clock.nowMs();
    for (const work of ["full", "partial"] as const) this.#requests.take(work, nowMs);
  }

  /** Runs a check that is due, before syncs that wait: a stream of changes must not keep it away. */
  async #check(signal: AbortSignal): Promise<boolean> {
    const { check } = this.#options;
    if (!this.#pending.hasDelivered) return false;
    const startMs = this.#clock.nowMs();
    if (this.#requests.take("check", startMs) === undefined || check === undefined) return false;
    await check.run(signal);
    this.#requestCheck(Number.POSITIVE_INFINITY, restPerCheck * (this.#clock.nowMs() - startMs));
    return true;
  }

  #requestCheck(atMostMs: number, atLeastMs = 0): void {
    const intervalMs = this.#options.check?.intervalMs ?? 0;
    if (intervalMs === 0) return;
    const delayMs = Math.max(Math.min(intervalMs, atMostMs), atLeastMs);
    this.#requests.request("check", "interval", this.#clock.nowMs() + delayMs);
  }

  /**
   * Syncs the pending update. Not in `run`, because a function that waits keeps its variables, and the first update is
   * the whole view once more.
   */
  async #syncPending(pacer: Pacer, backoff: Backoff, signal: AbortSignal): Promise<Outcome> {
    const { name, log, health } = this.#options;
    const delivery = this.#pending.take();
    if (delivery === undefined) return { kind: "nothing" };
    if (delivery.kind === "unneeded") {
      for (const observer of this.#observers) observer.settled?.(delivery.update);
      return { kind: "nothing" };
    }
    if (delivery.update.mode === "full") this.#dropRequests();
    const failure = await this.#syncOnce(delivery.update, signal);
    pacer.ended();
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
