import type { Family } from "@kpng/model/address.ts";
import { lowerBound } from "@kpng/model/collections.ts";
import { type KeyText, routeKinds, senders, sizes, slotKeyPlace } from "../layout/layout.ts";

/** A range of free numbers. */
interface Span {
  first: number;
  length: number;
}

/**
 * Free numbers of a range, e.g. unused elements of an array: takes the first gap that is long enough, and joins what is
 * given back with its neighbours. Pure; O(gaps) for each call.
 */
export class Spans {
  /** Ascending; no two touch. */
  readonly #free: Span[];

  constructor(first: number, length: number) {
    this.#free = [{ first, length }];
  }

  /** Takes `length` numbers in a row. Returns the first of them; undefined if there is no such gap. */
  take(length: number): number | undefined {
    const index = this.#free.findIndex((span) => span.length >= length);
    const span = this.#free[index];
    if (span === undefined) return undefined;
    const { first } = span;
    span.first += length;
    span.length -= length;
    if (span.length === 0) this.#free.splice(index, 1);
    return first;
  }

  /** Takes certain numbers. Returns false, and takes none, unless all of them are free. */
  reserve(first: number, length: number): boolean {
    const index = this.#after(first) - 1;
    const span = this.#free[index];
    if (span === undefined || first + length > span.first + span.length) return false;
    const tail = { first: first + length, length: span.first + span.length - first - length };
    span.length = first - span.first;
    this.#free.splice(index, 1, ...[span, tail].filter((one) => one.length > 0));
    return true;
  }

  /** Gives back numbers that were taken. */
  give(first: number, length: number): void {
    const index = this.#after(first);
    const before = this.#free[index - 1];
    const after = this.#free[index];
    const joinsAfter = after !== undefined && first + length === after.first;
    if (before !== undefined && before.first + before.length === first) {
      before.length += length + (joinsAfter ? after.length : 0);
      if (joinsAfter) this.#free.splice(index, 1);
    } else if (joinsAfter) {
      after.first = first;
      after.length += length;
    } else this.#free.splice(index, 0, { first, length });
  }

  /** Index of the first gap that begins after `first`. */
  #after(first: number): number {
    return lowerBound(this.#free.length, (index) => (this.#free[index]?.first ?? 0) <= first);
  }
}

const wordsPerSlot = sizes.slot / 8;
/** Numbers of 4 bytes in the routes of a frontend: of each, its kind and its run. */
const routesLength = senders.length * 2;

/**
 * One family's half of map `slots`, which is mapped into memory: routes and key of each frontend. This class alone
 * knows the memory, and keeps a copy of the routes that were written, as numbers: one BigInt per route dominated
 * garbage collection during a full load.
 */
export class FrontendSlots {
  readonly #memory: Buffer;
  readonly #words: BigUint64Array;
  readonly #first: number;
  readonly #count: number;
  readonly #routes: Int32Array;
  /** Routes that are being written, in both forms. */
  readonly #next = new Int32Array(routesLength);
  readonly #nextWords = new BigUint64Array(this.#next.buffer);
  #free: Spans;

  /** `memory` is that of both families, with `count` slots each. */
  constructor(family: Family, memory: Buffer, count: number) {
    this.#memory = memory;
    this.#words = new BigUint64Array(memory.buffer, memory.byteOffset, memory.length / 8);
    this.#first = family === "v4" ? 0 : count;
    this.#count = count;
    this.#routes = new Int32Array(count * routesLength);
    this.#free = new Spans(this.#first, count);
  }

  /** Makes all slots free, before {@link reserve} is called for those that are not. Writes nothing. */
  reset(): void {
    this.#free = new Spans(this.#first, this.#count);
  }

  /** Takes a certain slot with the routes that it has. Returns false if it is not free, or not of this family. */
  reserve(slot: number): boolean {
    if (!this.#free.reserve(slot, 1)) return false;
    const [from, to] = [slot * sizes.slot, this.#at(slot)];
    for (let index = 0; index < routesLength; index++) {
      this.#routes[to + index] = this.#memory.readInt32LE(from + index * 4);
    }
    return true;
  }

  /** Takes a free slot, and writes the key of its frontend. Returns undefined if there is none. */
  take(key: KeyText): number | undefined {
    const slot = this.#free.take(1);
    if (slot !== undefined) this.#memory.write(key, slot * sizes.slot + slotKeyPlace, "latin1");
    return slot;
  }

  /** Gives a slot back that no program reads any more. */
  give(slot: number): void {
    this.#words.fill(0n, slot * wordsPerSlot, (slot + 1) * wordsPerSlot);
    this.#free.give(slot, 1);
  }

  /** Returns the run that a route of a slot leads to; 0 for none. `index` is that of the sender. */
  runOf(slot: number, index: number): number {
    return this.#routes[this.#at(slot) + index * 2 + 1] ?? 0;
  }

  /** Prepares a route for {@link write}. `run` is 0 if it has none. */
  prepare(index: number, kind: number, run: number): void {
    this.#next[index * 2] = kind;
    this.#next[index * 2 + 1] = run;
  }

  /** Returns true if the slot has the prepared routes. */
  isPrepared(slot: number): boolean {
    const at = this.#at(slot);
    return this.#next.every((value, index) => value === this.#routes[at + index]);
  }

  /** Writes the prepared routes, each by one store. */
  write(slot: number): void {
    for (let index = 0; index < senders.length; index++) {
      Atomics.store(this.#words, slot * wordsPerSlot + index, this.#nextWords[index] ?? 0n);
    }
    this.#routes.set(this.#next, this.#at(slot));
  }

  /** Calls `visit` for the runs that the routes of a slot lead to, once for routes in a row that are alike. */
  eachUse(slot: number, visit: (run: number) => void): void {
    const at = this.#at(slot);
    let lastRun = 0;
    for (let index = at; index < at + routesLength; index += 2) {
      const [kind = 0, run = 0] = [this.#routes[index], this.#routes[index + 1]];
      if (kind !== routeKinds.balance || run === lastRun) continue;
      visit(run);
      lastRun = run;
    }
  }

  #at(slot: number): number {
    return (slot - this.#first) * routesLength;
  }
}
