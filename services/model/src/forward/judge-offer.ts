import { type Position, positionKinds, relate } from "./position.ts";

/** Memory of a node or relay, with which it never goes back to an older state. `ForwardGate` keeps it. */
export interface ForwardState {
  /** Position of the held state; undefined if it is unknown or nothing is held. */
  readonly held: Position | undefined;
  /** True if the held state is only known from the disk: this process has applied none yet. */
  readonly isSaved: boolean;
  /**
   * When the first and the last of a series of offers were refused, in milliseconds; undefined if none was since a state
   * was last applied. A series ends when nothing is offered for twice `acceptAfterMs`, because a watcher with a newer
   * state had no chance to offer it either.
   */
  readonly refusals: { readonly firstMs: number; readonly lastMs: number } | undefined;
  /** Best refused offer, and when it was made. */
  readonly best: { readonly offer: Offer; readonly atMs: number } | undefined;
}

/** State of a node that holds `held`. */
export function forwardState(held?: Position, isSaved = false): ForwardState {
  return { held, isSaved, refusals: undefined, best: undefined };
}

/**
 * Decision about an offered state.
 *
 * - apply: it is not older, or nothing is known.
 * - refuse: it is in doubt; another watcher may have a newer one.
 * - accept: it is in doubt, but no watcher has offered a better one for some time.
 */
export interface Judgement {
  readonly verdict: "apply" | "refuse" | "accept";
  readonly state: ForwardState;
}

/**
 * Judges a state that a watcher offers. `acceptAfterMs`: for how long states in doubt are refused. Pure; `nowMs` is
 * monotonic, in milliseconds.
 */
export function judgeOffer(state: ForwardState, offer: Offer, times: Times): Judgement {
  const { held, isSaved } = state;
  const { position, isStale = false, isUnchanged = false } = offer;
  const relation = relate(position, held);
  const isInDoubt =
    relation === "behind" || (!isSaved && (relation === "foreign" || (relation === "covers" && isStale)));
  if (!isInDoubt) return { verdict: "apply", state: forwardState(position) };
  // The node has this state already. It keeps the higher position, so that a later, older state is still recognized.
  if (isUnchanged) return { verdict: "apply", state: forwardState(held) };
  const { nowMs, acceptAfterMs } = times;
  const { refusals } = state;
  const firstMs = refusals !== undefined && isRecent(refusals.lastMs, times) ? refusals.firstMs : nowMs;
  const rival = recentOffer(state, times);
  const isBest = rival === undefined || isAtLeastAsGood(offer, rival.offer, held);
  if (nowMs - firstMs >= acceptAfterMs && isBest) return { verdict: "accept", state: forwardState(position) };
  const best = isBest ? { offer, atMs: nowMs } : rival;
  return { verdict: "refuse", state: { held, isSaved, refusals: { firstMs, lastMs: nowMs }, best } };
}

/**
 * Returns the time until the next offer can be accepted although it is in doubt, in milliseconds: 0 from then on,
 * undefined if no offer was refused recently. Pure. `ForwardGate` shortens delays between streams to it.
 */
export function untilAcceptedMs(state: ForwardState, times: Times): number | undefined {
  if (state.refusals === undefined || recentOffer(state, times) === undefined) return undefined;
  return Math.max(0, state.refusals.firstMs + times.acceptAfterMs - times.nowMs);
}

/** Best refused offer, unless it was made long ago: its watcher may be gone. */
function recentOffer({ best }: ForwardState, times: Times): ForwardState["best"] {
  return best !== undefined && isRecent(best.atMs, times) ? best : undefined;
}

/** Twice the time, because delays between offers vary. */
function isRecent(atMs: number, { nowMs, acceptAfterMs }: Times): boolean {
  return nowMs - atMs <= 2 * acceptAfterMs;
}

/**
 * Orders offers that are all in doubt. A watcher that is current comes first: after a restore of etcd, it has lower
 * versions than one that was cut off before. Then the cluster of the held state, then the higher versions.
 */
function isAtLeastAsGood(a: Offer, b: Offer, held: Position | undefined): boolean {
  const rank = ({ position, isStale = false }: Offer): readonly bigint[] => [
    BigInt(!isStale),
    BigInt(relate(position, held) !== "foreign"),
    positionKinds.reduce((sum, kind) => sum + (position?.current[kind] ?? 0n), 0n),
  ];
  const [ofA, ofB] = [rank(a), rank(b)];
  const index = ofA.findIndex((part, at) => part !== ofB[at]);
  return index === -1 || (ofA[index] ?? 0n) > (ofB[index] ?? 0n);
}

/** Monotonic time, and for how long states in doubt are refused, in milliseconds. */
interface Times {
  readonly nowMs: number;
  readonly acceptAfterMs: number;
}

/** State that a watcher offers. */
export interface Offer {
  readonly position: Position | undefined;
  /** The watcher does not know whether the state is current, because its own server does not answer. Default false. */
  readonly isStale?: boolean | undefined;
  /** The state is known to be the held one. Default false. */
  readonly isUnchanged?: boolean | undefined;
}
