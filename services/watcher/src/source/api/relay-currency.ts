import type { Transport } from "@connectrpc/connect";
import { type Admission, ForwardGate } from "@kpng/model/forward/forward-gate.ts";
import { isVouchedFor, type Position } from "@kpng/model/forward/position.ts";
import { probeServer } from "../probe-server.ts";
import type { CurrencySink } from "../source.ts";
import { askUpstream } from "./upstream-position.ts";

/**
 * Keeps a relay from going back to an older state of its upstream watcher, and knows how current the relay is.
 * `apiSource` asks it about every batch of the upstream. Separate from `apiSource`, because it needs no stream: it only
 * compares positions and asks the upstream for its own.
 */
export class RelayCurrency {
  readonly #gate: ForwardGate;
  readonly #options: RelayCurrencyOptions;
  /** Why there is no stream in sync; undefined while there is one. */
  #failure: string | undefined = "no stream from the upstream watcher";
  /** True after the first batch. Not derived from the gate: an original KPNG sends no positions. */
  #hasState = false;

  constructor(options: RelayCurrencyOptions) {
    this.#options = options;
    this.#gate = new ForwardGate({ acceptAfterMs: options.acceptOlderAfterMs });
  }

  /** Decides about a batch; see {@link ForwardGate}. */
  async admit(offered: Position | undefined, instance: string, signal: AbortSignal): Promise<Admission> {
    const admission = await this.#gate.admit(offered, async (needed) => {
      const answer = await askUpstream(this.#options.transport(), needed, checkLimitMs, signal);
      return typeof answer === "object" && answer.instance === instance ? answer : undefined;
    });
    if (admission.verdict === "accept") this.#options.onOlder();
    return admission;
  }

  /** Shortens the delay before the next stream while the upstream offers only older states. */
  retryDelayMs(delayMs: number): number {
    return this.#gate.retryDelayMs(delayMs);
  }

  /** The stream is in sync. */
  connected(): void {
    this.#failure = undefined;
    this.#hasState = true;
  }

  /** The stream has ended. */
  lost(reason: string): void {
    this.#failure = reason;
  }

  /** Answers nodes that hold a newer state, and probes the upstream, until `signal` aborts. */
  async run(currency: CurrencySink, signal: AbortSignal): Promise<void> {
    const { transport, staleAfterMs, onFrozen } = this.#options;
    currency.verifyWith(async (needed) => {
      const answer = await askUpstream(transport(), needed, checkLimitMs, signal);
      const held = this.#gate.held;
      if (typeof answer !== "object" || held === undefined || !isVouchedFor(held, needed, answer)) return false;
      currency.known(needed);
      return true;
    });
    const ask = async (limitMs: number): Promise<string | undefined> => {
      // The first batch is reported by the readiness of the process.
      if (!this.#hasState) return undefined;
      if (this.#failure !== undefined) return this.#failure;
      const answer = await askUpstream(transport(), undefined, limitMs, signal);
      if (typeof answer === "string") {
        onFrozen(answer);
        return `the upstream watcher does not answer: ${answer}`;
      }
      return answer?.isStale === true ? "the upstream watcher is stale" : undefined;
    };
    await probeServer({ ask, currency, staleAfterMs }, signal);
  }
}

/** How long the upstream may take to catch up before it counts as behind, in milliseconds. */
const checkLimitMs = 25_000;

/** Options of {@link RelayCurrency}. */
export interface RelayCurrencyOptions {
  /** Returns the current connection to the upstream watcher. */
  readonly transport: () => Transport;
  readonly acceptOlderAfterMs?: number | undefined;
  readonly staleAfterMs?: number | undefined;
  /** An older state was accepted, because the upstream offered nothing newer for some time. */
  readonly onOlder: () => void;
  /** The upstream did not answer in time, for this reason. */
  readonly onFrozen: (reason: string) => void;
}
