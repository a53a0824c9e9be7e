import { Lane, lanes, type Work } from "./lane.ts";

/** Maximum time of continuous work before the event loop turns, in milliseconds. */
const sliceMs = 10;

/** The same while clients connect: the event loop accepts only one connection per turn. */
const connectingSliceMs = 2;

/**
 * Longest time between two turns that is charged to the lanes, in milliseconds. A longer one has another cause: a list
 * of the source, or a full garbage collection.
 */
const maxBetweenMs = 40;

/** Longest time for which a round keeps the thread, in milliseconds: that of 2 000 to 4 000 subscribers. */
const maxRoundMs = 100;

/**
 * Schedules the work of all subscribers on the one thread. Each lane gets at least its share, and the event loop turns
 * after each 10 ms, or 2 ms while clients connect.
 *
 * The lane with the least charged time in proportion to its share is next. An idle lane saves nothing up: when it gets
 * work, it starts at the position of the others. The time between two turns also counts: there the event loop writes
 * what the work has produced, and reads what it causes subscribers to send. An update takes 10 µs, and 30 µs more in
 * the event loop; if these did not count, updates would get nearly all of the thread. Neither constant changes nor
 * thousands of new subscribers keep another lane waiting for long. Updates go first if two lanes are equal.
 *
 * A round of updates that has begun is completed before another lane is next; its lane then waits until the others have
 * had their shares. If other lanes ran during a round, it would take as long as all lanes together, and so would the
 * wait for the next one.
 *
 * Without turns of the event loop, a thousand nodes that reconnect, or a client that opens and cancels streams, would
 * delay health probes, pings and all other subscribers, and the watcher would learn of a cancelled stream only after
 * its work is done.
 *
 * *Bound:* one waiting piece of work for each subscriber and query.
 *
 * Separate from `Rounds`, which decides to which snapshot subscribers advance; this class decides what runs next.
 */
export class Scheduler {
  readonly #lanes: readonly Lane[] = Object.values(lanes).map(({ share, kinds }) => new Lane(share, kinds));
  readonly #laneOf = new Map(this.#lanes.flatMap((lane) => lane.kinds.map((kind) => [kind, lane] as const)));
  readonly #now: () => number;
  /** Position of the lane that ran last: charged time divided by the lane's share. */
  #position = 0;
  /** The lane that ran last, and for how long without another lane in between. */
  #current: Lane | undefined;
  #currentMs = 0;
  #waitingCount = 0;
  #usedMs = 0;
  #sliceMs = sliceMs;
  #hasConnected = false;
  /** The end of the last turn and `#usedMs` then; undefined if no work was waiting. */
  #turned: { readonly atMs: number; readonly usedMs: number } | undefined;
  #isTurning = false;
  #isWorking = false;

  /** `now` is in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Call when a connection was accepted. Turns are short as long as each accepts one; otherwise a thousand clients that
   * connect during a round would wait in the kernel for longer than for their views.
   */
  connected(): void {
    this.#hasConnected = true;
    this.#sliceMs = connectingSliceMs;
  }

  /** Runs the work, now or in a later turn of the event loop. It must not throw. */
  schedule(kind: Work, work: () => void): void {
    const lane = this.#laneOf.get(kind);
    if (lane === undefined) throw new Error(`unknown kind of work "${kind}"`);
    lane.add(kind, work, this.#position);
    this.#waitingCount += 1;
    // Work that schedules more work is not nested: it might never return, and shares would have no effect.
    if (!this.#isWorking && this.#usedMs < this.#sliceMs && this.#waitingCount === 1) this.#runNext();
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
    const next = this.#nextLane();
    if (next !== this.#current) this.#currentMs = 0;
    this.#current = next;
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
      this.#currentMs += costMs;
      next.charge(costMs);
      this.#isWorking = false;
    }
    return true;
  }

  #nextLane(): Lane | undefined {
    if (this.#current?.isInRound === true && this.#currentMs < maxRoundMs) return this.#current;
    let next: Lane | undefined;
    for (const lane of this.#lanes) {
      if (lane.size > 0 && (next === undefined || lane.position < next.position)) next = lane;
    }
    return next;
  }

  #turn(): void {
    if (this.#isTurning) return;
    this.#isTurning = true;
    setImmediate(() => {
      this.#isTurning = false;
      this.#chargeBetween();
      this.#usedMs = 0;
      this.#sliceMs = this.#hasConnected ? connectingSliceMs : sliceMs;
      this.#hasConnected = false;
      while (this.#usedMs < this.#sliceMs) if (!this.#runNext()) return;
      this.#turned = { atMs: this.#now(), usedMs: this.#usedMs };
      this.#turn();
    });
  }

  /** Charges the time since the last turn to the lanes, in proportion to the pieces of work that they have run. */
  #chargeBetween(): void {
    const runCount = this.#lanes.reduce((sum, lane) => sum + lane.takenCount, 0);
    if (this.#turned !== undefined && runCount > 0) {
      const { atMs, usedMs } = this.#turned;
      const betweenMs = Math.min(maxBetweenMs, this.#now() - atMs - (this.#usedMs - usedMs));
      this.#currentMs += betweenMs;
      for (const lane of this.#lanes) lane.chargeShare(betweenMs / runCount);
    }
    this.#turned = undefined;
    for (const lane of this.#lanes) lane.takenCount = 0;
  }
}

/**
 * The scheduler of this process, which has one thread. Streams, rounds, prepared snapshots, inspection and the status
 * page schedule their work on it.
 */
export const scheduler = new Scheduler();

/**
 * Yields the same items, each computed as a scheduled piece of work: the first one as `begin`, the others as
 * `continue`. Ends early when `signal` aborts. The NodeViewService computes its responses with it.
 */
export async function* scheduledItems<T>(items: Iterable<T>, signal: AbortSignal): AsyncIterable<T> {
  const iterator = items[Symbol.iterator]();
  for (let kind: Work = "begin"; ; kind = "continue") {
    const next = await scheduler.run(kind, () => (signal.aborted ? undefined : iterator.next()));
    if (next === undefined || next.done) return;
    yield next.value;
  }
}
