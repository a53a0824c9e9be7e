import { realClock } from "@kpng/process/clock.ts";

/**
 * Work that a backend requests from its sync loop, without a change of the view.
 *
 * - partial: a sync of the current view, for work that the backend postponed.
 * - full: a sync that examines everything, not only what changed in the view.
 * - check: a comparison of the installed rules with the rules of the last sync, and their repair; see `SyncPace.check`.
 */
export type RequestedWork = "partial" | "full" | "check";

interface Request {
  readonly atMs: number;
  readonly reason: string;
}

/**
 * Requests of a backend to its sync loop:
 *
 * - The rule sets of IPVS request a partial sync for work that is due later.
 * - `backendTask` requests a full sync for the first view of a watcher after a saved view.
 * - `SyncLoop` requests each periodic check; `driftCheck` requests another one after a check that failed.
 *
 * Requests of one kind are merged into the earliest. `SyncLoop` takes none of them before the first view is synced.
 *
 * *Bound:* one request of each kind.
 */
export class SyncRequests {
  readonly #requests = new Map<RequestedWork, Request>();
  #listener: () => void = () => undefined;

  /**
   * Requests work at the time `atMs` of the monotonic clock. Default: as soon as possible. `reason` is logged.
   */
  request(work: RequestedWork, reason: string, atMs = Number.NEGATIVE_INFINITY): void {
    const before = this.#requests.get(work);
    if (before !== undefined && before.atMs <= atMs) return;
    this.#requests.set(work, { atMs, reason });
    this.#listener();
  }

  /** For the loop: time of the next request in milliseconds; infinite if there is none. */
  get nextAtMs(): number {
    return Math.min(...[...this.#requests.values()].map(({ atMs }) => atMs), Number.POSITIVE_INFINITY);
  }

  /** For the loop: removes a request that is due and returns its reason; undefined if none is due. */
  take(work: RequestedWork, nowMs = realClock.nowMs()): string | undefined {
    const request = this.#requests.get(work);
    if (request === undefined || request.atMs > nowMs) return undefined;
    this.#requests.delete(work);
    return request.reason;
  }

  /** For the loop: calls `listener` at each request, unless an earlier one of the same kind waits. */
  onRequest(listener: () => void): void {
    this.#listener = listener;
  }
}
