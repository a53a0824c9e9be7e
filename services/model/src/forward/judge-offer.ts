import { isAtLeastAsNew, isVouchedFor, type Position, type PositionAnswer, positionKinds, relate } from "./position.ts";

/**
 * Memory of a node or relay, with which it never goes back to an older state. `ForwardGate` keeps it between offers.
 */
export interface ForwardState {
  /** Position of the held state; undefined if it is unknown or nothing is held. */
  readonly held: Position | undefined;
  /** When the first offer was refused since a state was last applied, in milliseconds; undefined if none was. */
  readonly behindSinceMs: number | undefined;
  /** Newest refused offer, and when it was made. */
  readonly newest: { readonly position: Position; readonly atMs: number } | undefined;
}

/** State of a node that holds `held`. */
export function forwardState(held?: Position): ForwardState {
  return { held, behindSinceMs: undefined, newest: undefined };
}

/**
 * Decision about an offered state.
 *
 * - apply: it is not older, or nothing is known.
 * - refuse: it may be older; another watcher may have a newer one.
 * - accept: it is older, but no watcher has offered a newer one for some time. It begins a new epoch.
 */
export interface Judgement {
  readonly verdict: "apply" | "refuse" | "accept";
  readonly state: ForwardState;
}

/**
 * Judges a state that a watcher offers. `answer`: what the watcher says about the held position; undefined if it was
 * not asked, or did not answer. `acceptAfterMs`: for how long older offers are refused.
 *
 * Pure; `offeredAtMs` and `nowMs` are monotonic times in milliseconds. The answer may have taken the time between them.
 *
 * `ForwardGate` calls it. Separate because it is pure, so that tests can try every history.
 */
export function judgeOffer(
  state: ForwardState,
  { offered, answer, offeredAtMs, nowMs, acceptAfterMs }: Offer & Times & { readonly offeredAtMs: number },
): Judgement {
  const { held } = state;
  if (offered === undefined || held === undefined || relate(offered, held) !== "behind") {
    return { verdict: "apply", state: forwardState(offered) };
  }
  if (answer !== undefined && isVouchedFor(offered, held, answer)) {
    // The epoch of the answer belongs to its versions. If these moved on meanwhile, the offer keeps its own epoch.
    const now = answer.state;
    const isSame = now !== undefined && positionKinds.every((kind) => now[kind] === offered[kind]);
    const epoch = isSame ? now.epoch : offered.epoch;
    return { verdict: "apply", state: forwardState({ ...offered, epoch }) };
  }
  const behindSinceMs = state.behindSinceMs ?? offeredAtMs;
  const rival = recentOffer(state, { nowMs, acceptAfterMs });
  const isNewest = rival === undefined || isAtLeastAsNew(offered, rival.position);
  if (nowMs - behindSinceMs >= acceptAfterMs && isNewest) return { verdict: "accept", state: forwardState(offered) };
  const newest = isNewest ? { position: offered, atMs: offeredAtMs } : rival;
  return { verdict: "refuse", state: { held, behindSinceMs, newest } };
}

/**
 * Returns the time until the next offer can be accepted although it is older, in milliseconds: 0 from then on,
 * undefined if no offer was refused recently. Pure. `ForwardGate` shortens delays between streams to it.
 */
export function untilAcceptedMs(state: ForwardState, times: Times): number | undefined {
  if (state.behindSinceMs === undefined || recentOffer(state, times) === undefined) return undefined;
  return Math.max(0, state.behindSinceMs + times.acceptAfterMs - times.nowMs);
}

/**
 * Newest refused offer, unless it was made long ago: its watcher may be gone. Twice the time, because delays between
 * offers vary.
 */
function recentOffer({ newest }: ForwardState, { nowMs, acceptAfterMs }: Times): ForwardState["newest"] {
  return newest !== undefined && nowMs - newest.atMs <= 2 * acceptAfterMs ? newest : undefined;
}

/** Monotonic time, and for how long older offers are refused, in milliseconds. */
interface Times {
  readonly nowMs: number;
  readonly acceptAfterMs: number;
}

/** State that a watcher offers. */
export interface Offer {
  readonly offered: Position | undefined;
  readonly answer: PositionAnswer | undefined;
}

/** Position with which a node that held `held` begins a new epoch at `offered`. */
export function beginEpoch(offered: Position, held: Position): Position {
  const { epoch } = offered.epoch > held.epoch ? offered : held;
  return { ...offered, epoch: epoch + 1n };
}
