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

/** Log of received batches: stream, revision and time. */
export class BatchLog {
  readonly #streams: number[] = [];
  readonly #revisions: number[] = [];
  readonly #times: number[] = [];

  get length(): number {
    return this.#streams.length;
  }

  add(stream: number, revision: number, atMs: number): void {
    this.#streams.push(stream);
    this.#revisions.push(revision);
    this.#times.push(atMs);
  }

  clear(): void {
    for (const column of [this.#streams, this.#revisions, this.#times]) column.length = 0;
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
    for (const [entry, stream] of this.#streams.entries()) {
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
}
