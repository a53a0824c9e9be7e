/**
 * Schedules the work of all subscribers on the one thread: by rank, within a rank in the order of the calls, and with a
 * turn of the event loop after each 10 ms.
 *
 * Without it, all work that becomes due in one turn of the loop runs in that turn. A thousand nodes that reconnect, or
 * a client that opens and cancels streams, would then delay health probes, pings and all other subscribers, and the
 * watcher would learn of a cancelled stream only after its work is done.
 *
 * *Bound:* one waiting task for each subscriber.
 */
export class Turns {
  readonly #waiting: Readonly<Record<Rank, Queue<() => void>>> = {
    update: new Queue(),
    round: new Queue(),
    resume: new Queue(),
    continue: new Queue(),
    begin: new Queue(),
  };
  readonly #now: () => number;
  #usedMs = 0;
  #isTurning = false;
  #isWorking = false;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Runs the work, now or in a later turn. It must not throw. */
  schedule(rank: Rank, work: () => void): void {
    // Work that schedules more work is not nested: it might never return, and ranks would have no effect.
    const isFirst = this.#firstRank(rank) === undefined;
    if (!this.#isWorking && this.#usedMs < sliceMs && isFirst) this.#do(work);
    else this.#waiting[rank].push(work);
    this.#turn();
  }

  /** Same as {@link schedule}; resolves with the result of the work, or rejects with its error. */
  run<T>(rank: Rank, work: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.schedule(rank, () => {
        try {
          resolve(work());
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  #do(work: () => void): void {
    this.#isWorking = true;
    const startMs = this.#now();
    try {
      work();
    } finally {
      this.#usedMs += this.#now() - startMs;
      this.#isWorking = false;
    }
  }

  /** Returns the highest rank with waiting work, down to `last`. */
  #firstRank(last: Rank): Rank | undefined {
    for (const rank of ranks) {
      if (!this.#waiting[rank].isEmpty) return rank;
      if (rank === last) break;
    }
    return undefined;
  }

  #turn(): void {
    if (this.#isTurning) return;
    this.#isTurning = true;
    setImmediate(() => {
      this.#isTurning = false;
      this.#usedMs = 0;
      for (;;) {
        const rank = this.#firstRank("begin");
        const work = rank && this.#waiting[rank].shift();
        if (work === undefined) return;
        this.#do(work);
        // The subscriber of this view requests its next part before another view begins.
        if (rank === "begin" || this.#usedMs >= sliceMs) break;
      }
      this.#turn();
    });
  }
}

/** Maximum time of continuous work before the event loop turns, in milliseconds. */
const sliceMs = 10;

/**
 * Priorities, highest first: changes for subscribers that have their view, the next round of changes (see Rounds),
 * subscribers that resume, the rest of a whole view in progress, the start of another whole view.
 *
 * New subscribers cost most. They delay no other subscriber, and their views are completed one after the other.
 */
const ranks = ["update", "round", "resume", "continue", "begin"] as const;
export type Rank = (typeof ranks)[number];

/** A FIFO queue with amortized constant time for both operations. */
class Queue<T> {
  #items: (T | undefined)[] = [];
  #first = 0;

  get isEmpty(): boolean {
    return this.#first === this.#items.length;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  /** Undefined if it is empty. */
  shift(): T | undefined {
    const item = this.#items[this.#first];
    if (this.isEmpty) return undefined;
    this.#items[this.#first] = undefined;
    this.#first += 1;
    if (this.#first * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#first);
      this.#first = 0;
    }
    return item;
  }
}

/** The turns of this process, which has one thread. */
export const turns = new Turns();

/**
 * Yields the same items, each computed in a turn: the first with `rank`, the others with "continue". Ends early when
 * `signal` aborts.
 */
export async function* inTurns<T>(items: Iterable<T>, rank: Rank, signal: AbortSignal): AsyncIterable<T> {
  const iterator = items[Symbol.iterator]();
  for (let isFirst = true; ; isFirst = false) {
    const next = await turns.run(isFirst ? rank : "continue", () => (signal.aborted ? undefined : iterator.next()));
    if (next === undefined || next.done) return;
    yield next.value;
  }
}
