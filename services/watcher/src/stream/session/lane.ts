import { Queue } from "./queue.ts";

/**
 * The lanes, which are queues of work that wait for the one thread of the process, and their shares of its time while
 * all of them have work. `Scheduler` has one `Lane` for each, and chooses which is next. A lane without work
 * leaves its share to the others.
 *
 * | Lane | Work | Kinds, first to last |
 * |---|---|---|
 * | `updates` | changes for subscribers that have their view | `update`, then `round`: the end of a round |
 * | `resumes` | first batches of subscribers that hold a view | `continue-resume`, then `resume` |
 * | `views` | first batches of other subscribers | `continue`, then `begin` |
 * | `queries` | responses to people: lists, explanations, reflection | `query` |
 *
 * A round of updates, see `Rounds`, brings all these subscribers to the same snapshot.
 *
 * A batch in progress is completed before another one begins, so views are completed one after the other.
 */
export const lanes = {
  updates: { share: 0.5, kinds: ["update", "round"] },
  resumes: { share: 0.25, kinds: ["continue-resume", "resume"] },
  views: { share: 0.2, kinds: ["continue", "begin"] },
  queries: { share: 0.05, kinds: ["query"] },
} as const;

/** The kind of a piece of work; see the lanes. */
export type Work = (typeof lanes)[keyof typeof lanes]["kinds"][number];

/**
 * The waiting work of one lane, and the time that it was charged. `Scheduler` is its only user. Separate from it
 * because a lane knows nothing about turns of the event loop.
 */
export class Lane {
  readonly kinds: readonly Work[];
  readonly #queues: ReadonlyMap<Work, Queue<() => void>>;
  readonly #share: number;
  /** Charged time divided by the share, in milliseconds; `Scheduler` chooses the lane with the lowest position. */
  position = 0;
  size = 0;
  /** Number of pieces of work that were taken since the last turn. */
  takenCount = 0;
  #lastKind: Work | undefined;

  constructor(share: number, kinds: readonly Work[]) {
    this.#share = share;
    this.kinds = kinds;
    this.#queues = new Map(kinds.map((kind) => [kind, new Queue()]));
  }

  /** `position` is that of the lane that ran last. */
  add(kind: Work, work: () => void, position: number): void {
    if (this.size === 0) this.position = Math.max(this.position, position);
    this.#queues.get(kind)?.push(work);
    this.size += 1;
  }

  /**
   * True if the last work taken was an update and more work waits: from the first update of a round until the end of
   * the round is taken, and while `PreparedSnapshots`, whose steps are updates too, has a step waiting.
   */
  get isInRound(): boolean {
    return this.size > 0 && this.#lastKind === "update";
  }

  take(): (() => void) | undefined {
    for (const [kind, queue] of this.#queues) {
      const work = queue.shift();
      if (work === undefined) continue;
      this.#lastKind = kind;
      this.size -= 1;
      this.takenCount += 1;
      return work;
    }
    return undefined;
  }

  charge(costMs: number): void {
    this.position += costMs / this.#share;
  }

  /** Charges so many milliseconds for each piece of work that was taken since the last turn. */
  chargeShare(eachMs: number): void {
    this.position += (eachMs * this.takenCount) / this.#share;
  }
}
