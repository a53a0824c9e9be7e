import { beginEpoch, type ForwardState, forwardState, type Judgement, judgeOffer } from "./judge-offer.ts";
import { isVouchedFor, type Position, type PositionAnswer, relate } from "./position.ts";

/**
 * Lets through only states that are not older than the one before. A backend passes each batch of its watcher through
 * it, and a relay each batch of its upstream; one gate lives as long as the process, over all streams. It keeps the
 * state and asks the watcher; `judgeOffer` decides.
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

  /** Position of the state that was last let through; undefined if it is unknown. */
  get held(): Position | undefined {
    return this.#state.held;
  }

  /**
   * Decides about a state that a watcher offers, and asks the watcher in doubt. `check` resolves with its answer about
   * a position, or with undefined if there is none. The caller must apply the state unless the verdict is "refuse".
   */
  async admit(offered: Position | undefined, check: Check): Promise<Judgement["verdict"]> {
    const { held } = this.#state;
    const isBehind = held !== undefined && relate(offered, held) === "behind";
    const answer = isBehind ? await check(held) : undefined;
    const nowMs = this.#nowMs();
    const { verdict, state } = judgeOffer(this.#state, { offered, answer, nowMs, acceptAfterMs: this.#acceptAfterMs });
    this.#state = state;
    if (verdict !== "accept" || offered === undefined || held === undefined) return verdict;
    if (offered.epoch > held.epoch) return verdict;
    // The watcher did not see that the versions went back, because it started later or is cut off. If it can prove
    // that it is current, it takes part in a new epoch. States from before are then older, even with higher versions.
    const position = beginEpoch(offered, held);
    const adopted = await check(position);
    if (adopted !== undefined && isVouchedFor(offered, position, adopted)) this.#state = forwardState(position);
    return verdict;
  }
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
