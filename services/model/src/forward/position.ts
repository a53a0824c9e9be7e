/**
 * How new a state of the cluster is; see the message localv1.Position. A watcher attaches it to every state that it
 * sends, and a node or relay compares it with the position of the state that it holds. Separate from `judgeOffer`,
 * which decides what to do: this file only compares.
 */
export interface Position {
  /** Counter of the versions: "kube", or the instance of the watcher that reads files. */
  readonly source: string;
  /** Number of times that the versions are known to have gone back, as after a restore of etcd. */
  readonly epoch: bigint;
  /** Version of the event or list that last changed the kind: a resourceVersion, or a revision of the store. */
  readonly services: bigint;
  readonly slices: bigint;
  readonly nodes: bigint;
}

/** Kinds that a position has a version of. */
export const positionKinds = ["services", "slices", "nodes"] as const;

/** Kind that a position has a version of. */
export type PositionKind = (typeof positionKinds)[number];

/**
 * How an offered state relates to a held one.
 *
 * - covers: it is not older: neither the epoch nor a version is lower.
 * - behind: it may be older in at least one kind.
 * - unrelated: nothing can be said, because the sources differ or a position is unknown.
 */
export type Relation = "covers" | "behind" | "unrelated";

/** Compares the position of an offered state with that of the state that a node holds. Pure. `judgeOffer` calls it. */
export function relate(offered: Position | undefined, held: Position | undefined): Relation {
  if (offered === undefined || held === undefined || offered.source !== held.source) return "unrelated";
  if (offered.epoch < held.epoch) return "behind";
  return positionKinds.every((kind) => offered[kind] >= held[kind]) ? "covers" : "behind";
}

/**
 * True if position `a` is at least as new as `b`, for choosing among offers that are all behind. Unlike {@link relate},
 * it orders positions of which each is newer in another kind.
 */
export function isAtLeastAsNew(a: Position, b: Position): boolean {
  if (a.epoch !== b.epoch) return a.epoch > b.epoch;
  return sum(a) >= sum(b);
}

function sum(position: Position): bigint {
  return positionKinds.reduce((total, kind) => total + position[kind], 0n);
}

/** Answer of a watcher to the question whether its state covers a position; see PositionService. */
export interface PositionAnswer {
  /** Position of the watcher's state when it answered. */
  readonly state: Position | undefined;
  /** That state is not older than the needed position. */
  readonly covers: boolean;
}

/**
 * True if the answer of a watcher shows that a state which it offered before is not older than the held one.
 *
 * The answer is about the state of a moment later. It holds for the offered state in each kind that did not change in
 * between. Pure.
 */
export function isVouchedFor(offered: Position, held: Position, { state, covers }: PositionAnswer): boolean {
  if (!covers || state === undefined) return false;
  const isComparable = offered.epoch >= held.epoch;
  return positionKinds.every((kind) => (isComparable && offered[kind] >= held[kind]) || offered[kind] === state[kind]);
}
