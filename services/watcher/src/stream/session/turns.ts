/** How long work may go on before everything else of the process gets its turn, in milliseconds. */
const sliceMs = 10;

/**
 * What goes first: news for those who have their view, then, when all of these have them, the next round of news (see
 * Rounds), then what is new for those who come back with a view, then the rest of a view that was begun, then another view. So newcomers, who cost most, delay nobody else, and are served one after
 * the other rather than all at the pace of the last.
 */
const ranks = ["update", "round", "resume", "continue", "begin"] as const;
export type Rank = (typeof ranks)[number];

/**
 * Lets much work of many subscribers share the one thread: it is done by rank, and within a rank in the order in which
 * it was asked for, and after each 10 ms the event loop turns.
 *
 * Without it, whatever becomes due in one turn of the loop runs in that turn: a thousand nodes that come back after a
 * restart, or a client that opens and cancels streams, would stop health probes, pings and all other subscribers for
 * as long as the work of all of them takes, and a cancelled stream would not be known to be cancelled before.
 *
 * *Bound:* one waiting piece of work for each subscriber.
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

  /** Does the work, now or in a later turn. It must not throw. */
  schedule(rank: Rank, work: () => void): void {
    // Work that asks for more work is not nested: it would neither end nor let anybody else go first.
    const isFirst = this.#firstRank(rank) === undefined;
    if (!this.#isWorking && this.#usedMs < sliceMs && isFirst) this.#do(work);
    else this.#waiting[rank].push(work);
    this.#turn();
  }

  /** Likewise; rejects with what the work throws. */
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

  /** The first rank of which work waits, up to this one. */
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
        // Who was just given the first piece of a view asks for the next one before anybody else begins.
        if (rank === "begin" || this.#usedMs >= sliceMs) break;
      }
      this.#turn();
    });
  }
}

/** First in, first out; both in constant time. */
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

/** Those of this process: it has one thread. */
export const turns = new Turns();

/** The same items, each made in a turn, the first as `rank`, the others as "continue"; ends early when `signal` aborts. */
export async function* inTurns<T>(items: Iterable<T>, rank: Rank, signal: AbortSignal): AsyncIterable<T> {
  const iterator = items[Symbol.iterator]();
  for (let isFirst = true; ; isFirst = false) {
    const next = await turns.run(isFirst ? rank : "continue", () => (signal.aborted ? undefined : iterator.next()));
    if (next === undefined || next.done) return;
    yield next.value;
  }
}
