import { setImmediate as nextTurn } from "node:timers/promises";
import { Backoff, type Clock, realClock } from "@kpng/process/clock.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf, stackOf } from "@kpng/process/log.ts";
import { traceFields } from "@kpng/process/trace/tracing.ts";
import { Wakeup, type waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import {
  mergeArrivals,
  type Sync,
  type SyncObserver,
  type SyncStages,
  type SyncTimes,
  type SyncUpdate,
  type ViewUpdate,
} from "../types/sync-update.ts";

export interface SyncPace {
  /**
   * Minimum time from the end of a sync, failed or not, to the start of the next, in milliseconds. Updates that arrive
   * meanwhile are merged. Default 0.
   */
  readonly minIntervalMs?: number | undefined;
  /** Runs between syncs, never during one. Default: none. */
  readonly check?: PeriodicCheck | undefined;
  /** Requests that the backend makes to this loop. Default: none. */
  readonly requests?: SyncRequests | undefined;
  readonly observers?: readonly SyncObserver[] | undefined;
  readonly nowMs?: (() => number) | undefined;
}

export interface PeriodicCheck {
  /** Time from the end of a check to the start of the next, in milliseconds. */
  readonly intervalMs: number;
  /** Compares the installed rules with those of the last sync, and repairs them. Must not reject. */
  run(signal: AbortSignal): Promise<void>;
}

interface SyncLoopOptions extends SyncPace {
  /** Name of the backend, used in the log and as the name of its health part. */
  readonly name: string;
  readonly sync: Sync;
  readonly log: Log;
  readonly health: Health;
  /** First delay after a failed sync, in milliseconds; it doubles up to 30 s. Default 1000. */
  readonly errorDelayMs?: number | undefined;
  readonly isOnce?: boolean | undefined;
  /** With `isOnce`: maximum time during which calls may fail, in milliseconds; 0 for no limit. Default 0. */
  readonly onceLimitMs?: number | undefined;
  readonly wait?: typeof waitMs | undefined;
}

type Outcome = "unneeded" | "synced" | "stopped" | { readonly delayMs: number; readonly cause: unknown };

/** Maximum delay of the first check, in ms: a program that an earlier, killed process started may still change rules. */
const firstCheckMs = 5_000;

/**
 * Requests for a sync of the current view, although nothing has changed. The IPVS rule sets make them for work that is
 * due later. Only the earliest request is kept, so each sync must request again what is then still due.
 */
export class SyncRequests {
  #atMs = Number.POSITIVE_INFINITY;
  #listener: () => void = () => undefined;

  /** Requests a sync at `atMs`, a time of the monotonic clock. */
  request(atMs: number): void {
    if (this.#atMs <= atMs) return;
    this.#atMs = atMs;
    this.#listener();
  }

  /** Infinite if there is no request. */
  get nextAtMs(): number {
    return this.#atMs;
  }

  /** For the loop: removes the request if it is due, and then returns true. */
  take(nowMs: number): boolean {
    if (this.#atMs > nowMs) return false;
    this.#atMs = Number.POSITIVE_INFINITY;
    return true;
  }

  /** For the loop: sets the only listener, which is called at each request unless an earlier request is pending. */
  onRequest(listener: () => void): void {
    this.#listener = listener;
  }
}

/**
 * Calls the backend's `sync` with the newest view of its node, one call at a time.
 *
 * Problem: during a rollout batches arrive every few milliseconds, while a sync takes milliseconds to seconds and may
 * fail. A queue of views would grow without a bound, and the backend would install states that are already out of date.
 *
 * Idea: at most one update waits. It is the newest view together with one set, `touched`: the Services that may differ
 * from the view of the last success. `ViewState` derives the set once per batch, by comparing items; this loop only
 * merges sets; `FamilyPlanner` adds the Services that gain a frontend from another Service or lose one to it; a rule
 * set renders only the touched Services.
 *
 * ```text
 * receive         state          sync                           proxy
 * followView ──► ViewState ──► PendingUpdate ──► SyncLoop ──► RuleSets ──► FamilyPlanner, RuleSet of each family
 *
 *    0 ms  revision 41 touches web          sync(41, {web}, partial) starts at once
 *    2 ms  revision 42 touches dns          waits
 *    3 ms  revision 43 touches web          merged: 43, {web, dns}
 *    5 ms  the sync of 41 succeeds
 *  105 ms  minIntervalMs = 100 is over      sync(43, {web, dns}, partial) starts, and fails at 110 ms
 * 1110 ms  errorDelayMs = 1000 is over      sync(44, {web, dns, api}, full): revision 44 touched api meanwhile
 * ```
 *
 * Invariants:
 *
 * - Syncs and checks never overlap, so rule sets need no locks. A running call is never interrupted.
 * - Packets see a change when the rule set commits it, inside `sync`. Only after that does an observer acknowledge the
 *   revision, save the view or answer health checks from it.
 * - An update that changes nothing is acknowledged without a call (`settled`).
 * - A full sync reads the installed rules, because they are unknown or not trusted: at the start, after a failure, and
 *   for a watcher's first view after a saved one. `touched` survives a failure. This lets `RuleSets` keep a partial
 *   outcome: if one family failed, only that family compares everything, and the other one syncs `touched`.
 * - Pace: `minIntervalMs` counts from the end of a sync, as in kube-proxy; if it counted from the start, a sync longer
 *   than the interval would be followed immediately by the next one. The delay after failures doubles up to 30 s.
 * - Drift: a check compares the installed rules with the last sync, first 5 s after the start and then at an interval.
 *   A due check goes before a waiting sync, so that constant changes cannot prevent it. A check that takes longer than
 *   the interval is followed by a pause of its own duration, so that syncs have half of the time.
 * - A rule set with work that is due later (IPVS, when connections have drained) requests a partial sync of the current
 *   view through `SyncRequests`.
 *
 * Rejected: keeping plans from one sync to the next, which would make a node with 5 000 Services hold its view twice
 * (the view itself shares unchanged Services between versions); and checks on a separate timer, which would need locks.
 */
export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #observers: readonly SyncObserver[];
  readonly #clock: Clock;
  readonly #pending = new PendingUpdate();
  readonly #requests: SyncRequests;
  readonly #arrived = new Wakeup();
  /** Infinite without checks. */
  #checkAtMs = Number.POSITIVE_INFINITY;
  #endedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: SyncLoopOptions) {
    const { nowMs = realClock.nowMs, wait = realClock.wait, requests = new SyncRequests() } = options;
    this.#options = options;
    this.#observers = options.observers ?? [];
    this.#clock = { nowMs, wait };
    this.#requests = requests;
    options.health.setWaiting(options.name, "not yet synced");
    requests.onRequest(() => this.#arrived.wake());
  }

  /**
   * Adds an update and merges it with the waiting one, if any. With `fullReason`, it is synced in full, even if it
   * changes nothing.
   */
  offer(update: ViewUpdate, fullReason?: string): void {
    const isChanged = this.#pending.add(update, fullReason);
    if (isChanged) for (const observer of this.#observers) observer.queued?.(update);
    this.#arrived.wake();
  }

  /**
   * Runs until `signal` aborts or, with `isOnce`, until the first success. A running call is not interrupted.
   *
   * Rejects only with `isOnce`, with the error of the last call, if calls have failed for `onceLimitMs`.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { isOnce = false, onceLimitMs = 0, errorDelayMs = 1_000, minIntervalMs = 0 } = this.#options;
    let failingSinceMs: number | undefined;
    const backoff = new Backoff({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs) });
    const { check } = this.#options;
    if (check !== undefined) this.#checkAtMs = this.#clock.nowMs() + Math.min(check.intervalMs, firstCheckMs);
    while (!signal.aborted) {
      if (await this.#check(signal)) continue;
      // Before the first success, this has no effect: that sync covers all requests.
      if (this.#requests.take(this.#clock.nowMs())) this.#pending.require();
      if (!this.#pending.isWaiting) {
        await this.#waitForWork(signal);
        continue;
      }
      const restMs = this.#endedAtMs + minIntervalMs - this.#clock.nowMs();
      if (restMs > 0) {
        await this.#clock.wait(restMs, signal);
        continue;
      }
      const outcome = await this.#syncPending(backoff, signal);
      if (outcome === "synced" && isOnce) return;
      if (typeof outcome === "string") continue;
      failingSinceMs ??= this.#clock.nowMs();
      const nextMs = this.#clock.nowMs() + outcome.delayMs;
      // The next attempt would begin after the limit.
      if (isOnce && onceLimitMs > 0 && nextMs - failingSinceMs >= onceLimitMs) throw outcome.cause;
      await this.#clock.wait(outcome.delayMs, signal);
    }
  }

  /** Waits for an update or a request, at most until the next request or check is due. */
  async #waitForWork(signal: AbortSignal): Promise<void> {
    const ended = new AbortController();
    const delayMs = Math.max(0, Math.min(this.#requests.nextAtMs, this.#checkAtMs) - this.#clock.nowMs());
    if (this.#pending.hasDelivered && Number.isFinite(delayMs)) {
      // A wait that ended early must not wake the next one.
      void this.#clock.wait(delayMs, ended.signal).then(() => ended.signal.aborted || this.#arrived.wake());
    }
    await this.#arrived.wait(signal);
    ended.abort();
  }

  /** Runs a check if it is due, and then returns true. */
  async #check(signal: AbortSignal): Promise<boolean> {
    const { check } = this.#options;
    const startMs = this.#clock.nowMs();
    // Before the first sync, there are no rules to check. If it failed, there are: those of a family that succeeded.
    if (check === undefined || !Number.isFinite(this.#endedAtMs) || startMs < this.#checkAtMs) return false;
    await check.run(signal);
    const endMs = this.#clock.nowMs();
    this.#checkAtMs = endMs + Math.max(check.intervalMs, endMs - startMs);
    return true;
  }

  /**
   * Syncs the pending update. This is not part of `run`, because a waiting function keeps its variables alive, and the
   * changes of the first update are as large as the whole view.
   */
  async #syncPending(backoff: Backoff, signal: AbortSignal): Promise<Outcome> {
    const { name, sync, log, health } = this.#options;
    const { update, isNeeded } = this.#pending.take();
    if (!isNeeded) {
      for (const observer of this.#observers) observer.settled?.(update);
      return "unneeded";
    }
    // Handle timers and sockets first, so that health probes are answered between two syncs even under constant
    // changes.
    await nextTurn();
    for (const observer of this.#observers) observer.started?.(update);
    const stages = measureStages(update.arrival?.receivedAtMs);
    let times: SyncTimes;
    try {
      await sync(update, signal, stages);
      times = stages.end();
    } catch (cause) {
      // A call that was told to stop, and did, has not failed.
      if (signal.aborted && cause === signal.reason) return "stopped";
      const reason = reasonOf(cause);
      this.#pending.failed(update);
      health.setFailing(name, reason);
      for (const observer of this.#observers) observer.failed?.(update, reason, stages.end());
      const delayMs = backoff.nextMs();
      const stack = stackOf(cause);
      log.error("sync failed", { backend: name, revision: Number(update.revision), reason, delayMs, stack });
      return { delayMs, cause };
    } finally {
      this.#endedAtMs = this.#clock.nowMs();
    }
    this.#pending.delivered(update);
    backoff.reset();
    health.setReady(name);
    for (const observer of this.#observers) observer.succeeded?.(update, times);
    log.debug("sync complete", {
      backend: name,
      mode: update.mode,
      ...(update.mode === "full" ? { fullReason: update.fullReason } : {}),
      revision: Number(update.revision),
      services: update.touched.size,
      waitMs: Math.round(times.startedAtMs - times.receivedAtMs),
      renderMs: Math.round(times.renderedAtMs - times.startedAtMs),
      commitMs: Math.round(times.endedAtMs - times.renderedAtMs),
      ...traceFields(update.arrival?.traceparents[0]),
    });
    return "synced";
  }
}

/**
 * The update that `SyncLoop` will deliver next.
 *
 * *Bound:* the newest view, the last delivered view, and the keys of the Services that changed since the last success,
 * but never a list of updates.
 */
class PendingUpdate {
  /** The last update that is in effect. */
  #delivered: ViewUpdate | undefined;
  #newest: ViewUpdate | undefined;
  /** Why the next delivery will be full; "" if it will be partial. */
  #fullReason = "start";
  /** True if the next delivery takes place even if nothing has changed. */
  #isRequired = false;

  get isWaiting(): boolean {
    return this.#newest !== undefined;
  }

  get hasDelivered(): boolean {
    return this.#delivered !== undefined;
  }

  /** Merges an update into the waiting one. With `fullReason`, the delivery is full. Returns true if the view changes. */
  add(update: ViewUpdate, fullReason = ""): boolean {
    const isChanged = differ(this.#newest ?? this.#delivered, update);
    this.#newest = this.#newest === undefined ? update : merge(this.#newest, update);
    this.#fullReason ||= fullReason;
    return isChanged;
  }

  /** Requires a delivery even if the view has not changed. Has no effect before the first successful delivery. */
  require(): void {
    if (this.#delivered === undefined) return;
    this.#isRequired = true;
    this.#newest ??= { ...this.#delivered, arrival: undefined };
  }

  /**
   * Takes the waiting update, with the Services touched since the last successful delivery. If it is needed, call
   * `delivered` or `failed` before the next `take`.
   */
  take(): { readonly update: SyncUpdate; readonly isNeeded: boolean } {
    const newest = this.#newest;
    if (newest === undefined) throw new Error("no update is waiting");
    const fullReason = this.#fullReason;
    const isNeeded = fullReason !== "" || this.#isRequired || differ(this.#delivered, newest);
    const mode = fullReason === "" ? "partial" : "full";
    const update: SyncUpdate = { ...newest, isFirst: this.#delivered === undefined, mode, fullReason };
    this.#newest = undefined;
    this.#isRequired = false;
    this.#fullReason = "";
    // A requested sync of this view must report the newest revision, which may be of another watcher run.
    if (!isNeeded) this.delivered(update);
    return { update, isNeeded };
  }

  delivered(update: ViewUpdate): void {
    this.#delivered = { ...update, touched: new Set(), counts: { services: 0, endpoints: 0 } };
  }

  /** Records that a delivery failed: the next one will be full and contain these changes as well. */
  failed(update: ViewUpdate): void {
    // Replaces the other reasons: an update that has one of them touches all Services anyway.
    this.#newest = this.#newest === undefined ? update : merge(update, this.#newest);
    this.#fullReason = "failure";
  }
}

/** True if an update changes the view of the previous one. */
function differ(before: ViewUpdate | undefined, { touched, view }: ViewUpdate): boolean {
  return touched.size > 0 || view.node !== before?.view.node;
}

/** Merges an update with a newer one, so that one sync applies both. */
function merge(older: ViewUpdate, newer: ViewUpdate): ViewUpdate {
  return {
    ...newer,
    touched: older.touched.union(newer.touched),
    counts: {
      services: older.counts.services + newer.counts.services,
      endpoints: older.counts.endpoints + newer.counts.endpoints,
    },
    arrival: mergeArrivals(older.arrival, newer.arrival),
  };
}

/** `receivedAtMs` is undefined if no update caused the sync. */
function measureStages(receivedAtMs: number | undefined): SyncStages & { readonly end: () => SyncTimes } {
  const startedAtMs = wallClockMs();
  let committingAtMs: number | undefined;
  return {
    committing: () => {
      committingAtMs ??= wallClockMs();
    },
    end: () => ({
      receivedAtMs: Math.min(receivedAtMs ?? startedAtMs, startedAtMs),
      startedAtMs,
      renderedAtMs: committingAtMs ?? startedAtMs,
      endedAtMs: wallClockMs(),
    }),
  };
}
