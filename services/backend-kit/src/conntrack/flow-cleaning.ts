import type { NodeView } from "@kpng/model/node-view.ts";
import { Backoff } from "@kpng/process/backoff.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import type { CleanRequest, StaleFlowCleaner } from "./stale-flow-cleaner.ts";

/** Options of {@link FlowCleaning}. */
export interface FlowCleaningOptions {
  readonly cleaner: Pick<StaleFlowCleaner, "clean">;
  readonly health: Health;
  /** First delay after a failure, in milliseconds; it doubles up to 30 s. */
  readonly errorDelayMs: number;
  /** Called once before the first search, when rules are installed: sets the limits of the conntrack table. */
  readonly prepare: () => Promise<void>;
}

const healthPart = "conntrack";

/**
 * Runs `StaleFlowCleaner` beside the sync loop: reading a large conntrack table takes seconds, and rules must not wait
 * for it. `AfterCommit` requests a search after each commit.
 *
 * A failure is reported as the reason of the health part "conntrack", which stays healthy because rules do not depend
 * on it, and the search is repeated with backoff.
 *
 * *Bound:* one request; requests that arrive during a search are merged.
 */
export class FlowCleaning {
  readonly #options: FlowCleaningOptions;
  readonly #arrived = new Wakeup();
  readonly #idled = new Wakeup();
  #pending: CleanRequest | undefined;
  #newest: NodeView | undefined;
  #isBusy = false;

  constructor(options: FlowCleaningOptions) {
    this.#options = options;
    options.health.setReady(healthPart);
  }

  /** Announces a view whose rules are about to be installed, so that no flow that it needs is deleted. */
  expect(view: NodeView): void {
    this.#newest = view;
  }

  /** Requests a search. Call it when the rules of the view are installed, in the families of the request. */
  offer(request: Omit<CleanRequest, "newest">): void {
    this.#newest ??= request.view;
    this.#pending = this.#pending === undefined ? request : merge(this.#pending, request);
    this.#arrived.wake();
  }

  /** Searches when it is requested, until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { cleaner, health, prepare, errorDelayMs } = this.#options;
    const backoff = new Backoff({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs) });
    let isPrepared = false;
    while (!signal.aborted) {
      const request = this.#pending;
      if (request === undefined) {
        this.#idled.wake();
        await this.#arrived.wait(signal);
        continue;
      }
      this.#pending = undefined;
      this.#isBusy = true;
      if (!isPrepared) await prepare();
      isPrepared = true;
      const result = await cleaner.clean({ ...request, newest: () => this.#newest ?? request.view }, signal);
      this.#isBusy = false;
      if (result.kind !== "failed") {
        backoff.reset();
        health.setReady(healthPart);
        continue;
      }
      if (signal.aborted) break;
      health.set(healthPart, { isHealthy: true, isReady: true, reason: result.reason });
      this.#idled.wake();
      await waitMs(backoff.nextMs(), signal);
      // The cleaner itself remembers which Services it has not examined.
      this.offer({ ...(this.#pending ?? request), changed: [] });
    }
    this.#isBusy = false;
    this.#idled.wake();
  }

  /** Resolves when no search is running or requested, after one that failed, or when `signal` aborts. */
  async settled(signal: AbortSignal): Promise<void> {
    if (this.#isBusy || this.#pending !== undefined) await this.#idled.wait(signal);
  }
}

function merge(older: CleanRequest, newer: CleanRequest): CleanRequest {
  const changed =
    older.changed === "all" || newer.changed === "all" ? "all" : new Set([...older.changed, ...newer.changed]);
  return { ...newer, changed };
}
