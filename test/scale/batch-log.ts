/** Revision of a change, and its time by the machine's monotonic clock. */
export interface MadeChange {
  readonly revision: number;
  readonly atMs: number;
}

/** Quantiles of times in milliseconds; NaN if there are none. */
export interface Quantiles {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

export interface Latencies extends Quantiles {
  /** For each change, the time until the last stream had it. */
  readonly lastByChange: readonly number[];
}

export function summarize(sorted: readonly number[]): Quantiles {
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1) };
}

/** Initial capacity of the log in entries; a full log doubles it. */
const firstCapacity = 1 << 16;

/** Log of received batches: stream, revision and time. A batch of any size takes a few bytes. */
export class BatchLog {
  #streams = new Uint32Array(firstCapacity);
  #revisions = new Float64Array(firstCapacity);
  #times = new Float64Array(firstCapacity);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(stream: number, revision: number, atMs: number): void {
    if (this.#length === this.#streams.length) this.#grow();
    this.#streams[this.#length] = stream;
    this.#revisions[this.#length] = revision;
    this.#times[this.#length] = atMs;
    this.#length += 1;
  }

  clear(): void {
    this.#length = 0;
  }

  /**
   * Returns the age of each batch, in milliseconds: from its oldest change until the whole batch was received.
   *
   * `sinceRevision` is the revision of all streams when the log was cleared. If the server sends no revisions, it must
   * send one batch per change, and the batches of each stream are counted.
   */
  latencies(changes: readonly MadeChange[], sinceRevision: number): Latencies {
    const ages: number[] = [];
    const lastByChange = changes.map(() => 0);
    const nextChange = new Map<number, number>();
    for (let entry = 0; entry < this.#length; entry += 1) {
      const stream = this.#streams[entry] ?? 0;
      const revision = this.#revisions[entry] ?? 0;
      const first = nextChange.get(stream) ?? 0;
      let next = first;
      if (revision === 0) next = first + 1;
      else if (revision > sinceRevision) {
        while (next < changes.length && (changes[next]?.revision ?? 0) <= revision) next += 1;
      }
      nextChange.set(stream, next);
      const atMs = this.#times[entry] ?? 0;
      for (let index = first; index < Math.min(next, changes.length); index += 1) {
        const age = atMs - (changes[index]?.atMs ?? atMs);
        if (index === first) ages.push(age);
        lastByChange[index] = Math.max(lastByChange[index] ?? 0, age);
      }
    }
    const sorted = ages.sort((a, b) => a - b);
    return { ...summarize(sorted), lastByChange };
  }

  /** Time at which the last batch of any stream was received. */
  get lastAtMs(): number {
    return this.#length === 0 ? Number.NaN : (this.#times[this.#length - 1] ?? Number.NaN);
  }

  #grow(): void {
    const grown = <A extends Uint32Array | Float64Array>(old: A, fresh: A): A => {
      fresh.set(old);
      return fresh;
    };
    const capacity = this.#streams.length * 2;
    this.#streams = grown(this.#streams, new Uint32Array(capacity));
    this.#revisions = grown(this.#revisions, new Float64Array(capacity));
    this.#times = grown(this.#times, new Float64Array(capacity));
  }
}
