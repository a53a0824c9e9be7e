import { quantile } from "./proc.ts";

/** Revision of a change, and its time by the machine's monotonic clock. */
export interface MadeChange {
  readonly revision: number;
  readonly atMs: number;
}

interface Latencies {
  /** 99 of 100 batches are younger, in milliseconds; NaN if there are none. */
  readonly p99: number;
  /** For each change, the time until the last stream had it. */
  readonly lastByChange: readonly number[];
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
   * Returns the ages of batches, in milliseconds: from its oldest change until the whole batch was received.
   *
   * `sinceRevision` is the revision of all streams when the log was cleared.
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
      if (revision > sinceRevision) {
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
    return { p99: quantile(ages, 0.99), lastByChange };
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
