import {
  type ForwardState,
  forwardState,
  type Judgement,
  judgeOffer,
  type Offer,
  untilAcceptedMs,
} from "./judge-offer.ts";
import type { Position } from "./position.ts";

/**
 * Lets through only states that are not older than the one before. A backend passes each batch of its watcher through
 * it, and a relay each batch of its upstream; one gate lives as long as the process, over all streams. It keeps the
 * state of {@link judgeOffer}, which decides.
 */
export class ForwardGate {
  readonly #acceptAfterMs: number;
  readonly #nowMs: () => number;
  #state: ForwardState;

  constructor({ acceptAfterMs = 60_000, nowMs = () => performance.now() }: ForwardGateOptions = {}) {
    this.#acceptAfterMs = acceptAfterMs;
    this.#nowMs = nowMs;
    this.#state = forwardState();
  }

  /** Sets the position of a saved view. */
  hold(position: Position | undefined): void {
    this.#state = forwardState(position, true);
  }

  /** Position of the state that was last applied; undefined if it is unknown. */
  get held(): Position | undefined {
    return this.#state.held;
  }

  /**
   * Decides about a state that a watcher offers. Unless the verdict is "refuse", the caller applies the state and then
   * calls `applied`. If it cannot apply the state, the gate keeps the position that it had.
   */
  admit(offer: Offer): Admission {
    const times = { nowMs: this.#nowMs(), acceptAfterMs: this.#acceptAfterMs };
    const { verdict, state } = judgeOffer(this.#state, offer, times);
    if (verdict === "refuse") this.#state = state;
    return {
      verdict,
      applied: () => {
        this.#state = state;
      },
    };
  }

  /**
   * Shortens the delay before the next stream while offers are refused, so that one is accepted soon after
   * `acceptAfterMs`, whatever the backoff. Up to a tenth of `acceptAfterMs` is added at random, because after a restore
   * of etcd all nodes wait for the same moment. `random` returns a number from 0 up to but not including 1.
   */
  retryDelayMs(delayMs: number, random: () => number = Math.random): number {
    const acceptAfterMs = this.#acceptAfterMs;
    const remainingMs = untilAcceptedMs(this.#state, { nowMs: this.#nowMs(), acceptAfterMs });
    if (remainingMs === undefined) return delayMs;
    return Math.min(delayMs, Math.ceil(remainingMs + (random() * acceptAfterMs) / 10));
  }
}

/** Decision of a {@link ForwardGate} about an offered state. */
export interface Admission {
  readonly verdict: Judgement["verdict"];
  /** Must be called when the state was applied; does nothing if it was refused. */
  readonly applied: () => void;
}

/** Options of a {@link ForwardGate}. */
export interface ForwardGateOptions {
  /** How long all offers must be in doubt before the best one is accepted, in milliseconds. Default 60 000. */
  readonly acceptAfterMs?: number | undefined;
  /** Monotonic clock, in milliseconds. */
  readonly nowMs?: (() => number) | undefined;
}
