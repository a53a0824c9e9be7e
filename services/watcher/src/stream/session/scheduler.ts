import { Queue } from "./queue.ts";

/** Maximum time of continuous work before the event loop turns, in milliseconds. */
const sliceMs = 10;

/**
 * The lanes of work that wait for the thread, and their shares of it while all of them have work. A lane without work
 * leaves its share to the others.
 *
 * | Lane | Work | Kinds, first to last |
 * |---|---|---|
 * | `updates` | changes for subscribers that have their view | `update`, then the end of a round (see Rounds) |
 * | `resumes` | first batches of subscribers that hold a view | `continue-resume`, then `resume` |
 * | `views` | first batches of other subscribers | `continue`, then `begin` |
 * | `queries` | responses to people: lists, explanations | `query` |
 *
 * A batch in progress is completed before another one begins, so views are completed one after the other.
 */
const lanes = {
  updates: { share: 0.65, kinds: ["update", "round"] },
  resumes: { share: 0.15, kinds: ["continue-resume", "resume"] },
  views: { share: 0.15, kinds: ["continue", "begin"] },
  queries: { share: 0.05, kinds: ["query"] },
} as const;

/** The kind of a piece of work; see the lanes. */
export type Work = (typeof lanes)[keyof typeof lanes]["kinds"][number];

/**
 * Highest cost of a piece of work that its lane is charged, as a multiple of the lane's mean. The first view after a
 * start also builds the parts that all views share; without the limit, the views after it would wait for that.
 */
const maxOutlier = 8;

/** Weight of the newest piece of work in the mean cost. */
const newestShare = 0.1;

/** Mean cost of a lane before its first work, in milliseconds. */
const firstMeanMs = 5;

/** Lowest mean cost of a lane, in milliseconds. */
const minMeanMs = 1;

/**
 * Schedules the work of all subscribers on the one thread. Each lane gets at least its share, and the event loop turns
 * after each 10 ms.
 *
 * The lane with the least charged time in proportion to its share is next. An idle lane saves nothing up: when it gets
 * work, it starts at the position of the others. Neither constant changes nor thousands of new
 * subscribers keep another lane waiting for long. Updates go first if two lanes are equal.
 *
 * Without turns of the event loop, a thousand nodes that reconnect, or a client that opens and cancels streams, would
 * delay health probes, pings and all other subscribers, and the watcher would learn of a cancelled stream only after
 * its work is done.
 *
 * *Bound:* one waiting piece of work for each subscriber and query.
 */
export class Scheduler {
  readonly #lanes: readonly Lane[] = Object.values(lanes).map(({ share, kinds }) => new Lane(share, kinds));
  readonly #laneOf = new Map(this.#lanes.flatMap((lane) => lane.kinds.map((kind) => [kind, lane] as const)));
  readonly #now: () => number;
  /** Position of the lane that ran last: charged time divided by the lane's share. */
  #position = 0;
  #waitingCount = 0;
  #usedMs = 0;
  #isTurning = false;
  #isWorking = false;

  /** `now` is in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Runs the work, now or in a later turn of the event loop. It must not throw. */
  schedule(kind: Work, work: () => void): void {
    const lane = this.#laneOf.get(kind);
    if (lane === undefined) throw new Error(`unknown kind of work "${kind}"`);
    lane.add(kind, work, this.#position);
    this.#waitingCount += 1;
    // Work that schedules more work is not nested: it might never return, and shares would have no effect.
    if (!this.#isWorking && this.#usedMs < sliceMs && this.#waitingCount === 1) this.#runNext();
    this.#turn();
  }

  /** Same as {@link schedule}; resolves with the result of the work, or rejects with its error. */
  run<T>(kind: Work, work: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.schedule(kind, () => {
        try {
          resolve(work());
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  /** False if no work waits. */
  #runNext(): boolean {
    let next: Lane | undefined;
    for (const lane of this.#lanes) {
      if (lane.size > 0 && (next === undefined || lane.position < next.position)) next = lane;
    }
    const work = next?.take();
    if (next === undefined || work === undefined) return false;
    this.#waitingCount -= 1;
    this.#position = next.position;
    this.#isWorking = true;
    const startMs = this.#now();
    try {
      work();
    } finally {
      const costMs = this.#now() - startMs;
      this.#usedMs += costMs;
      next.charge(costMs);
      this.#isWorking = false;
    }
    return true;
  }

  #turn(): void {
    if (this.#isTurning) return;
    this.#isTurning = true;
    setImmediate(() => {
      this.#isTurning = false;
      this.#usedMs = 0;
      while (this.#usedMs < sliceMs) if (!this.#runNext()) return;
      this.#turn();
    });
  }
}

/** The waiting work of one lane. */
class Lane {
  readonly kinds: readonly Work[];
  readonly #queues: ReadonlyMap<Work, Queue<() => void>>;
  readonly #share: number;
  #meanMs = firstMeanMs;
  position = 0;
  size = 0;

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

  take(): (() => void) | undefined {
    for (const queue of this.#queues.values()) {
      const work = queue.shift();
      if (work === undefined) continue;
      this.size -= 1;
      return work;
    }
    return undefined;
  }

  charge(costMs: number): void {
    const chargedMs = Math.min(costMs, this.#meanMs * maxOutlier);
    this.#meanMs = Math.max(minMeanMs, this.#meanMs + (chargedMs - this.#meanMs) * newestShare);
    this.position += chargedMs / this.#share;
  }
}

/** The scheduler of this process, which has one thread. */
export const scheduler = new Scheduler();

/**
 * Yields the same items, each computed as a scheduled piece of work: the first one as `begin`, the others as
 * `continue`. Ends early when `signal` aborts.
 */
export async function* scheduledItems<T>(items: Iterable<T>, signal: AbortSignal): AsyncIterable<T> {
  const iterator = items[Symbol.iterator]();
  for (let kind: Work = "begin"; ; kind = "continue") {
    const next = await scheduler.run(kind, () => (signal.aborted ? undefined : iterator.next()));
    if (next === undefined || next.done) return;
    yield next.value;
  }
}
