import {
  beginEpoch,
  type ForwardState,
  forwardState,
  type Judgement,
  judgeOffer,
  untilAcceptedMs,
} from "./judge-offer.ts";
import { isVouchedFor, type Position, type PositionAnswer, relate } from "./position.ts";

/**
 * Lets through only states that are not older than the one before. A backend passes each batch of its watcher through
 * it, and a relay each batch of its upstream; one gate lives as long as the process, over all streams. Separate from
 * `judgeOffer`, which decides and is pure: this class keeps the state and asks the watcher.
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

  /** Sets the position of the state that is held at the start, for instance that of a saved view. */
  hold(position: Position | undefined): void {
    this.#state = forwardState(position);
  }

  /** Position of the state that was last applied; undefined if it is unknown. */
  get held(): Position | undefined {
    return this.#state.held;
  }

  /**
   * Decides about a state that a watcher offers, and asks the watcher in doubt. `check` resolves with its answer about
   * a position, or with undefined if there is none. Unless the verdict is "refuse", the caller applies the state and
   * then calls `applied`. If it cannot apply the state, the gate keeps the position that it had.
   */
  async admit(offered: Position | undefined, check: Check): Promise<Admission> {
    const { held } = this.#state;
    const offeredAtMs = this.#nowMs();
    const isBehind = held !== undefined && relate(offered, held) === "behind";
    const answer = isBehind ? await check(held) : undefined;
    const times = { offeredAtMs, nowMs: this.#nowMs(), acceptAfterMs: this.#acceptAfterMs };
    const { verdict, state } = judgeOffer(this.#state, { offered, answer, ...times });
    const admit = (next: ForwardState): Admission => ({
      verdict,
      applied: () => {
        this.#state = next;
      },
    });
    if (verdict === "refuse") this.#state = state;
    if (verdict !== "accept" || offered === undefined || held === undefined) return admit(state);
    if (offered.epoch > held.epoch) return admit(state);
    // The watcher did not see that the versions went back, because it started later or is cut off. If it can prove
    // that it is current, it takes part in a new epoch. States from before are then older, even with higher versions.
    const position = beginEpoch(offered, held);
    const adopted = await check(position);
    const isAdopted = adopted !== undefined && isVouchedFor(offered, position, adopted);
    return admit(isAdopted ? forwardState(position) : state);
  }

  /**
   * Shortens the delay before the next stream while offers are refused, so that an older one is accepted soon after
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

/** Asks the watcher that offers a state whether it covers a position. Never rejects. */
export type Check = (needed: Position) => Promise<PositionAnswer | undefined>;

/** Options of a {@link ForwardGate}. */
export interface ForwardGateOptions {
  /** How long everything offered must be older before the newest offer is accepted, in milliseconds. Default 60 000. */
  readonly acceptAfterMs?: number | undefined;
  /** Monotonic clock, in milliseconds. */
  readonly nowMs?: (() => number) | undefined;
}
