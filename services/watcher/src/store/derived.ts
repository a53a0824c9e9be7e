import { emptySnapshot, type Snapshot } from "./snapshot.ts";

/**
 * A value that follows the snapshots: the encoded Services, their digests, the chunks of whole views. `at` computes the
 * value for a snapshot from the value for an earlier one, so that the cost of a revision depends on what it changed.
 *
 * **The problem.** One endpoint of 50 000 changes, and 1 000 streams need the change. Encoding all Services takes three
 * seconds; a queue of changes for each stream would grow for as long as its reader is slow.
 *
 * **The idea.** A snapshot never changes, and shares all equal objects with the next one. Any two snapshots can be
 * compared by reference, and a result that was computed for a shared object stays valid:
 *
 * ```text
 * revision            41                 42: a slice of default/web was put
 * slicesByService     512 shards         511 of these shards, and a copy of one
 *   in that shard     web → A, dns → B   web → A', dns → B
 * changedServices                        default/web
 * serviceStates       web → S, dns → T   web → S', dns → T    S' reuses the items of unchanged endpoints of S
 * serviceChunks       c0 c1 … c78        c0 c1' … c78         c0 and c2 to c78 keep their compressed bytes
 * ```
 *
 * Values are computed on demand, each from the ones above it. If revisions 42 to 50 arrive during one round (`Rounds`),
 * the next value is computed from 41. The first values, for which nothing can be reused, are computed in steps. Results
 * for a pair of snapshots, such as the operations of a batch, are kept in a {@link Between}.
 *
 * **Invariants.**
 *
 * 1. The store replaces an object only if its value changes (`applyChange`). An equal copy would cost time but cause
 *    nothing to be sent, because streams compare bytes.
 * 2. A value depends only on its snapshot; the base determines only the cost. Requests may therefore come in any order,
 *    even for snapshots of several stores. That is why one instance per process, at module level, is enough.
 * 3. A value lives as long as its snapshot. The newest value is also kept in this class, as the base of the next one.
 *
 * **Measured** with 5 000 Services of 10 endpoints: a changed slice takes 0.08 ms in the store, 0.01 ms to find its
 * Service, 0.1 ms for the Service's items and 0.1 ms for the operations and the digest of the first node. All 1 000
 * nodes together take 0.6 ms.
 *
 * **Rejected.** *A WeakMap from snapshots to values*: V8 frees its entries only in full garbage collections, which then
 * occurred every 40 changes instead of every 200 (docs/decisions/0024). *Computing all values at each revision*: most
 * revisions are never sent.
 */
export class Derived<T> {
  readonly #empty: T;
  readonly #evolve: Evolve<T, Steps<T>>;
  #last: { readonly snapshot: Snapshot; readonly value: T };
  /** The computation in progress, which all callers advance. */
  #work: { readonly snapshot: Snapshot; readonly steps: Steps<T> } | undefined;

  /**
   * `evolve` returns the value for `snapshot`, given the value for an earlier snapshot, which it must not modify. It
   * yields after every bit of work. `empty` is the value for the empty snapshot.
   */
  constructor(empty: T, evolve: Evolve<T, Steps<T>>) {
    this.#empty = empty;
    this.#evolve = evolve;
    this.#last = { snapshot: emptySnapshot, value: empty };
  }

  /** Returns a derived value whose first computation takes so little time that it is done in one step. */
  static atOnce<T>(empty: T, evolve: Evolve<T, T>): Derived<T> {
    return new Derived(empty, (...args) => ({ next: () => ({ done: true, value: evolve(...args) }) }));
  }

  /** The snapshot with the highest revision for which the value was computed. */
  get newest(): Snapshot {
    return this.#last.snapshot;
  }

  at(snapshot: Snapshot): T {
    if (snapshot === this.#last.snapshot) return this.#last.value;
    if (snapshot === emptySnapshot) return this.#empty;
    const values = this.#valuesOf(snapshot);
    while (!values.has(this)) this.#step(snapshot);
    return values.get(this) as T;
  }

  /**
   * Computes the value for a snapshot, one step per iteration, so that the caller can pause; {@link at} then has it.
   * There is one computation at a time; the one for another snapshot begins with its result.
   */
  *steps(snapshot: Snapshot): Generator<void, void> {
    const values = this.#valuesOf(snapshot);
    while (snapshot !== emptySnapshot && !values.has(this)) {
      this.#step(snapshot);
      yield;
    }
  }

  /** Does a step of the computation in progress, or of a new one. If a step throws, the computation is given up. */
  #step(snapshot: Snapshot): void {
    const last = this.#last;
    const work = this.#work ?? { snapshot, steps: this.#evolve(last.value, last.snapshot, snapshot) };
    this.#work = undefined;
    const { done, value } = work.steps.next();
    if (done !== true) {
      this.#work = work;
      return;
    }
    this.#valuesOf(work.snapshot).set(this, value);
    // A request for an older snapshot must not replace the newest snapshot as the base of the next value.
    if (work.snapshot.revision >= last.snapshot.revision) this.#last = { snapshot: work.snapshot, value };
  }

  #valuesOf(snapshot: Snapshot): Map<Derived<T>, T> {
    return valuesOf(snapshot) as Map<Derived<T>, T>;
  }
}

type Evolve<T, Result> = (value: T, before: Snapshot, snapshot: Snapshot) => Result;

/** A computation that can pause after each step; its return value is the result. */
export type Steps<T> = Iterator<void, T>;

const derivedValues = Symbol("derived values");

/** Returns the values for a snapshot, keyed by their {@link Derived}. */
function valuesOf(snapshot: Snapshot & { [derivedValues]?: Map<unknown, unknown> }): Map<unknown, unknown> {
  const existing = snapshot[derivedValues];
  if (existing !== undefined) return existing;
  const values = new Map<unknown, unknown>();
  // This property is not enumerable, so that a modified copy of the snapshot does not inherit the values.
  Object.defineProperty(snapshot, derivedValues, { value: values });
  return values;
}

/** Maximum number of pairs for which a {@link Between} keeps values: the pair of this round, and those of laggards. */
const maxPairs = 32;

/**
 * A value that is computed from a pair of snapshots. Subscribers that keep up all request the same pair. The value must
 * not depend on who requests it: only the first request's `context` is used.
 *
 * *Bound:* the values of the {@link maxPairs} pairs that were requested last, and their snapshots.
 */
export class Between<T, C = void> {
  readonly #make: (before: Snapshot, snapshot: Snapshot, context: C) => T;
  /** The last request comes first. */
  #recent: readonly { readonly before: Snapshot; readonly snapshot: Snapshot; readonly value: T }[] = [];

  constructor(make: (before: Snapshot, snapshot: Snapshot, context: C) => T) {
    this.#make = make;
  }

  of(before: Snapshot, snapshot: Snapshot, context: C): T {
    const found = this.#recent.find((one) => one.before === before && one.snapshot === snapshot);
    const pair = found ?? { before, snapshot, value: this.#make(before, snapshot, context) };
    if (pair !== this.#recent[0]) {
      this.#recent = [pair, ...this.#recent.filter((one) => one !== pair)].slice(0, maxPairs);
    }
    return pair.value;
  }
}

const changedKeys = new Between((before, snapshot): readonly string[] => [
  ...new Set([
    ...snapshot.services.changedKeys(before.services),
    ...snapshot.slicesByService.changedKeys(before.slicesByService),
  ]),
]);

/** Returns the keys of the Services that differ between two snapshots, or whose slices differ. */
export function changedServices(before: Snapshot, snapshot: Snapshot): readonly string[] {
  return changedKeys.of(before, snapshot);
}
