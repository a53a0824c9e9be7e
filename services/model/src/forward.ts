/**
 * How new a state of the cluster is. A watcher attaches a position to every state that it sends. A node or relay
 * compares it with the position of its own state ({@link ForwardGate}), so that it never goes back to an older state
 * (docs/design/views.md).
 *
 * Each kind has two versions: for Services, `services` is the version at which this watcher last saw them change, and
 * `current.services` is the version up to which it knows that nothing else has changed. A state is not older than
 * another one if its `current` version has reached the other's version. In this example, A → B means that a node that
 * holds the state of A is offered the state of B:
 *
 * ```text
 * Services change at 100, and not again
 * A listed them at 90, saw the event at 100, and a bookmark at 180:   services 100, current 180
 * B listed them at 150:                                                services 150, current 150
 * A → B: 150 ≥ 100, not older.  B → A: 180 ≥ 150, not older.  Before the bookmark, B → A would be in doubt.
 * ```
 *
 * A position is computed when its state is stored, so a bookmark counts from the next revision of the store on.
 */
export interface Position {
  /**
   * Identity of the version counter: "kube:" and the UID of the namespace kube-system for an API server, "kube" if the
   * watcher may not read the UID, or the instance of the watcher for files and recordings.
   */
  readonly source: string;
  /** Version of the event or list that last changed the kind: a resourceVersion, or a revision of the store. */
  readonly services: bigint;
  readonly slices: bigint;
  readonly nodes: bigint;
  /** Versions up to which the state is known, from events, lists and bookmarks, to be equal to the source's. */
  readonly current: Readonly<Record<PositionKind, bigint>>;
}

/** Kinds of objects that have versions in a position. */
export const positionKinds = ["services", "slices", "nodes"] as const;

export type PositionKind = (typeof positionKinds)[number];

/** Returns the value of `Position.source` for an API server. `clusterId` is undefined if it is unknown. */
export function kubePositionSource(clusterId: string | undefined): string {
  return clusterId === undefined ? "kube" : `kube:${clusterId}`;
}

/** Returns the identity of the cluster to which positions with this source belong; "" if it is unknown. */
export function clusterIdOf(source: string): string {
  return source.startsWith("kube:") ? source.slice("kube:".length) : "";
}

/**
 * How an offered state relates to the held state, which is the last one that was applied.
 *
 * - covers: the offered state is not older.
 * - behind: the offered state may be older for at least one kind.
 * - foreign: the offered state comes from another cluster. An API server with an empty etcd counts as another cluster.
 * - unrelated: the states cannot be compared, because a position is unknown or counts the revisions of one watcher.
 */
type Relation = "covers" | "behind" | "foreign" | "unrelated";

/** What a refused offer is called in messages. A state that covers the held one is refused only if it is stale. */
const doubts: Readonly<Record<Relation, string>> = {
  behind: "an older state",
  foreign: "a state of another cluster",
  covers: "a state that may be out of date",
  unrelated: "",
};

function relate(offered: Position | undefined, held: Position | undefined): Relation {
  if (offered === undefined || held === undefined) return "unrelated";
  const isKube = [offered.source, held.source].map((source) => source === "kube" || source.startsWith("kube:"));
  const isSame = offered.source === held.source;
  if (!isSame && !(isKube[0] && isKube[1])) return "unrelated";
  // A watcher that may not read the UID is assumed to serve the same cluster as the others.
  if (!isSame && offered.source !== "kube" && held.source !== "kube") return "foreign";
  return positionKinds.every((kind) => offered.current[kind] >= held[kind]) ? "covers" : "behind";
}

/**
 * Admits only states that are not older than the previous one. A backend passes each batch from its watcher through a
 * gate, and a relay does the same with each batch from its upstream. The gate lives as long as the process, across all
 * streams.
 *
 * A state in doubt (one that may be older) is refused, because another watcher may have a newer one. After
 * `acceptAfterMs` of refusals, the best offered state is accepted.
 */
export class ForwardGate {
  readonly #acceptAfterMs: number;
  readonly #nowMs: () => number;
  #memory: Memory = { held: undefined, isSaved: false };

  constructor({ acceptAfterMs = 60_000, nowMs = () => performance.now() }: ForwardGateOptions = {}) {
    this.#acceptAfterMs = acceptAfterMs;
    this.#nowMs = nowMs;
  }

  /** Sets the position of a saved view. To be called before the first offer. */
  hold(position: Position | undefined): void {
    this.#memory = { held: position, isSaved: true };
  }

  /** Position of the state that was last applied; undefined if it is unknown. */
  get held(): Position | undefined {
    return this.#memory.held;
  }

  /**
   * Decides whether to admit a state that a watcher offers. Unless the verdict is "refuse", the caller applies the
   * state and then calls `applied`. If the caller cannot apply the state, the gate keeps its previous position.
   */
  admit(offer: Offer): Admission {
    const { held, isSaved, refusals } = this.#memory;
    const { position, isStale = false, isUnchanged } = offer;
    const accept = (verdict: "apply" | "accept", next: Position | undefined): Admission => ({
      verdict,
      doubt: "",
      applied: () => {
        this.#memory = { held: next, isSaved: false };
      },
    });
    const relation = relate(position, held);
    // Older states, states of another cluster, and states from a stale watcher are in doubt. A stale watcher's server
    // does not answer, so another watcher may have a newer state. After a restart, only older states are in doubt: a
    // node that has applied nothing yet is better served by any state of its own or a new cluster than by waiting. An
    // unrelated state, such as the first one received, is never in doubt, because nothing indicates that a better one
    // exists.
    const isInDoubt =
      relation === "behind" || (!isSaved && (relation === "foreign" || (relation === "covers" && isStale)));
    if (!isInDoubt) return accept("apply", position);
    // The node already has this state. It keeps its own position, which is higher: with the offered position, a state
    // between the two would no longer be recognized as older.
    if (isUnchanged?.() === true) return accept("apply", held);
    const nowMs = this.#nowMs();
    const firstMs = refusals !== undefined && this.#isRecent(refusals.lastMs) ? refusals.firstMs : nowMs;
    const rival = this.#recentBest();
    const isBest = rival === undefined || isAtLeastAsGood(offer, rival.offer, held);
    if (nowMs - firstMs >= this.#acceptAfterMs && isBest) return accept("accept", position);
    const best = isBest ? { offer, atMs: nowMs } : rival;
    this.#memory = { held, isSaved, refusals: { firstMs, lastMs: nowMs, best } };
    return { verdict: "refuse", doubt: doubts[relation], applied: () => undefined };
  }

  /**
   * Shortens the delay before the next stream while offers are refused, so that an offer is accepted soon after
   * `acceptAfterMs`, regardless of the backoff. A random delay of up to a tenth of `acceptAfterMs` is added, because
   * after an etcd restore all nodes wait for the same moment. `random` returns a number from 0 up to but not including
   * 1.
   */
  retryDelayMs(delayMs: number, random: () => number = Math.random): number {
    const { refusals } = this.#memory;
    if (refusals === undefined || this.#recentBest() === undefined) return delayMs;
    const remainingMs = Math.max(0, refusals.firstMs + this.#acceptAfterMs - this.#nowMs());
    return Math.min(delayMs, Math.ceil(remainingMs + (random() * this.#acceptAfterMs) / 10));
  }

  /** Returns the best refused offer, unless it is so old that its watcher may be gone. */
  #recentBest(): Refusals["best"] | undefined {
    const best = this.#memory.refusals?.best;
    return best !== undefined && this.#isRecent(best.atMs) ? best : undefined;
  }

  /** Allows twice `acceptAfterMs`, because delays between offers vary. */
  #isRecent(atMs: number): boolean {
    return this.#nowMs() - atMs <= 2 * this.#acceptAfterMs;
  }
}

interface Memory {
  /** Position of the held state; undefined if it is unknown or nothing is held. */
  readonly held: Position | undefined;
  /** True if the held state was read from disk and this process has not applied any state yet. */
  readonly isSaved: boolean;
  /** Undefined if no offer has been refused since a state was last applied. */
  readonly refusals?: Refusals;
}

/**
 * A series of refused offers. It ends when nothing has been offered for twice `acceptAfterMs`, because in that time a
 * watcher with a newer state could not have offered it either.
 */
interface Refusals {
  /** Times at which the first and the last offer were refused, in milliseconds. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** Best refused offer, and when it was made. */
  readonly best: { readonly offer: Offer; readonly atMs: number };
}

/**
 * Compares two offers that are in doubt. An offer from a watcher that is not stale is better: after an etcd restore, it
 * has lower versions than an offer from a watcher that was cut off before. Next, an offer from the cluster of the held
 * state is better, and then the offer with the higher versions.
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

/** State that a watcher offers. */
export interface Offer {
  readonly position: Position | undefined;
  /**
   * True if the watcher does not know whether the state is current, because its own server does not answer. Default
   * false.
   */
  readonly isStale?: boolean | undefined;
  /**
   * Returns true if applying the state would change nothing, because the receiver already has it. Called only for an
   * offer in doubt. Default: never unchanged.
   */
  readonly isUnchanged?: (() => boolean) | undefined;
}

/** Decision of a {@link ForwardGate} about an offered state. */
export interface Admission {
  /**
   * - apply: the state is not older, or the states cannot be compared.
   * - refuse: the state is in doubt; another watcher may have a newer one.
   * - accept: the state is in doubt, but no watcher has offered a better one for some time.
   */
  readonly verdict: "apply" | "refuse" | "accept";
  /** What the offered state is, for messages, e.g. "an older state" if it is refused; otherwise "". */
  readonly doubt: string;
  /** Must be called once the state has been applied; does nothing for a refused state. */
  readonly applied: () => void;
}

interface ForwardGateOptions {
  /** How long all offers must be in doubt before the best one is accepted, in milliseconds. Default 60 000. */
  readonly acceptAfterMs?: number | undefined;
  /** Monotonic clock, in milliseconds. */
  readonly nowMs?: (() => number) | undefined;
}
