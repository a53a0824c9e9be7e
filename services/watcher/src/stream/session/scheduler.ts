/** Maximum time of continuous work before the event loop gets a turn, in milliseconds. */
const sliceMs = 10;

/** The same limit while clients are connecting, because the event loop accepts only one connection per turn. */
const connectingSliceMs = 2;

/**
 * Maximum time between two slices that is charged to a lane, in milliseconds. A longer time has another cause, such as
 * a list from the source or a full garbage collection.
 */
const maxBetweenMs = 40;

/** Maximum time for which a round keeps the thread, in milliseconds. It is enough for 2 000 to 4 000 subscribers. */
const maxRoundMs = 100;

/**
 * Shares the single thread between two lanes, so that neither constant changes nor thousands of new subscribers keep
 * the other lane waiting for long:
 *
 * | Lane | Share | Work | Urgent | Other, in the order of arrival |
 * |---|---|---|---|---|
 * | settled | 2/3 | changes for subscribers that have their view | `update` | `round`: the end of a round |
 * | first | 1/3 | first batches, and responses to people | `continue` a batch | `begin` a batch, `query` |
 *
 * While both lanes have work, each gets its share, in slices of 10 ms. After each slice, the event loop gets a turn.
 * Without these turns, a thousand reconnecting nodes would delay health probes, pings and all other subscribers, and
 * the watcher would learn that a stream was cancelled only after having done the work for it.
 *
 * The time until the next slice is charged to the lane, too, because in that time the event loop writes the output of
 * the work and reads the messages that subscribers send in response. An update takes 10 µs, and another 30 µs in the
 * event loop. If those 30 µs did not count, updates would get nearly all of the thread's time.
 *
 * A round of updates (see `Rounds`) that has begun is completed before the other lane gets its turn. If the other lane
 * ran during a round, the round would take as long as both together, and so would the wait for the next round. A batch
 * in progress is completed before another one begins, so first views are completed one after another.
 *
 * *Bound:* one piece of waiting work for each subscriber and each query.
 */
export class Scheduler {
  readonly #settled = new Lane(2 / 3);
  readonly #first = new Lane(1 / 3);
  readonly #now: () => number;
  /** The lane that ran last, and the time for which it has run since the other lane's last turn. */
  #current = this.#settled;
  #currentMs = 0;
  /** Time spent on work since the event loop's last turn. */
  #usedMs = 0;
  /** Time at which the last piece of work ended. */
  #endedAtMs = 0;
  #hasConnected = false;
  #isTurning = false;
  #isWorking = false;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * To be called when a connection is accepted. Slices stay short for as long as every turn accepts a connection;
   * otherwise, a thousand clients would wait longer in the kernel than for their views.
   */
  connected(): void {
    this.#hasConnected = true;
  }

  /** Runs the work, either now or in a later turn of the event loop. The work must not throw. */
  schedule(kind: Work, work: () => void): void {
    const lane = kind === "update" || kind === "round" ? this.#settled : this.#first;
    const isIdle = this.#settled.size + this.#first.size === 0;
    // A lane does not save up its share while it is idle.
    if (lane.size === 0) lane.chargedMs = Math.max(lane.chargedMs, this.#current.chargedMs);
    lane.add(kind, work);
    // Work that is scheduled by other work does not run inside it, because the outer work might then never return.
    if (isIdle && !this.#isWorking && this.#usedMs < this.#maxSliceMs) this.#run(lane);
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

  get #maxSliceMs(): number {
    return this.#hasConnected ? connectingSliceMs : sliceMs;
  }

  #run(lane: Lane): void {
    if (lane !== this.#current) this.#currentMs = 0;
    this.#current = lane;
    const startMs = this.#now();
    this.#isWorking = true;
    try {
      lane.take()?.();
    } finally {
      this.#isWorking = false;
      this.#endedAtMs = this.#now();
      const costMs = this.#endedAtMs - startMs;
      this.#usedMs += costMs;
      this.#charge(costMs);
    }
  }

  #charge(ms: number): void {
    this.#current.chargedMs += ms / this.#current.share;
    this.#currentMs += ms;
  }

  #turn(): void {
    if (this.#isTurning) return;
    this.#isTurning = true;
    setImmediate(() => {
      this.#isTurning = false;
      if (this.#settled.size + this.#first.size > 0)
        this.#charge(Math.min(maxBetweenMs, this.#now() - this.#endedAtMs));
      this.#usedMs = 0;
      const maxMs = this.#maxSliceMs;
      this.#hasConnected = false;
      const lane = this.#nextLane();
      while (this.#usedMs < maxMs && lane.size > 0) this.#run(lane);
      if (this.#settled.size + this.#first.size > 0) this.#turn();
    });
  }

  #nextLane(): Lane {
    const [settled, first] = [this.#settled, this.#first];
    if (first.size === 0) return settled;
    if (settled.size === 0) return first;
    if (this.#current === settled && settled.isInRound && this.#currentMs < maxRoundMs) return settled;
    return first.chargedMs < settled.chargedMs ? first : settled;
  }
}

/** The kind of a piece of work; see {@link Scheduler}. */
export type Work = "update" | "round" | "continue" | "begin" | "query";

/** The waiting work of one lane. */
class Lane {
  readonly #urgent: (() => void)[] = [];
  readonly #other: (() => void)[] = [];
  readonly share: number;
  /** Time charged to the lane, divided by the lane's share. */
  chargedMs = 0;
  #wasUrgent = false;

  constructor(share: number) {
    this.share = share;
  }

  get size(): number {
    return this.#urgent.length + this.#other.length;
  }

  /** True from the first update of a round until the end of the round has been taken. */
  get isInRound(): boolean {
    return this.size > 0 && this.#wasUrgent;
  }

  add(kind: Work, work: () => void): void {
    (kind === "update" || kind === "continue" ? this.#urgent : this.#other).push(work);
  }

  take(): (() => void) | undefined {
    this.#wasUrgent = this.#urgent.length > 0;
    return this.#wasUrgent ? this.#urgent.shift() : this.#other.shift();
  }
}
