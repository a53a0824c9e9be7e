import type { Family } from "@kpng/model/address.ts";
import { lowerBound } from "@kpng/model/collections.ts";
import { type KeyText, routeKinds, senders, sizes, slotKeyPlace } from "../layout/layout.ts";

/** A range of free numbers. */
interface Span {
  first: number;
  length: number;
}

/**
 * The free numbers in a range, e.g. unused elements of an array. It takes numbers from the first gap that is long
 * enough, and joins returned numbers with neighbouring gaps. No I/O; O(gaps) for each call.
 */
export class Spans {
  /** The gaps in ascending order. No two are adjacent. */
  readonly #free: Span[];

  constructor(first: number, length: number) {
    this.#free = [{ first, length }];
  }

  /** Takes `length` consecutive numbers. Returns the first of them, or undefined if no gap is long enough. */
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

  /** Takes `length` consecutive numbers from `first` on. If any of them is not free, takes none and returns false. */
  reserve(first: number, length: number): boolean {
    const index = this.#after(first) - 1;
    const span = this.#free[index];
    if (span === undefined || first + length > span.first + span.length) return false;
    const tail = { first: first + length, length: span.first + span.length - first - length };
    span.length = first - span.first;
    this.#free.splice(index, 1, ...[span, tail].filter((one) => one.length > 0));
    return true;
  }

  /** Returns numbers that were taken. */
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
/** Number of 4-byte numbers in the routes of a frontend: a kind and a run for each route. */
const routesLength = senders.length * 2;

/**
 * One family's half of map `slots`, which is mapped into memory: the routes and the key of each frontend. Only this
 * class accesses the memory. It keeps a copy of the written routes as numbers, because one BigInt per route dominated
 * garbage collection during a full load.
 */
export class FrontendSlots {
  readonly #memory: Buffer;
  readonly #words: BigUint64Array;
  readonly #first: number;
  readonly #count: number;
  readonly #routes: Int32Array;
  /** The routes to be written, as numbers and as 8-byte words. */
  readonly #next = new Int32Array(routesLength);
  readonly #nextWords = new BigUint64Array(this.#next.buffer);
  #free: Spans;

  /** `memory` contains the slots of both families, `count` for each. */
  constructor(family: Family, memory: Buffer, count: number) {
    this.#memory = memory;
    this.#words = new BigUint64Array(memory.buffer, memory.byteOffset, memory.length / 8);
    this.#first = family === "v4" ? 0 : count;
    this.#count = count;
    this.#routes = new Int32Array(count * routesLength);
    this.#free = new Spans(this.#first, count);
  }

  /** Declares all slots free, without writing to them. The caller then calls {@link reserve} for each used slot. */
  reset(): void {
    this.#free = new Spans(this.#first, this.#count);
  }

  /** Takes the given slot with its present routes. Returns false if it is not free or belongs to the other family. */
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

  /** Frees a slot that no program reads any more. */
  give(slot: number): void {
    this.#words.fill(0n, slot * wordsPerSlot, (slot + 1) * wordsPerSlot);
    this.#free.give(slot, 1);
  }

  /** Returns the run to which a route of a slot leads; 0 for none. `index` is the index of the sender. */
  runOf(slot: number, index: number): number {
    return this.#routes[this.#at(slot) + index * 2 + 1] ?? 0;
  }

  /** Prepares a route for {@link write}. `run` is 0 if the route has none. */
  prepare(index: number, kind: number, run: number): void {
    this.#next[index * 2] = kind;
    this.#next[index * 2 + 1] = run;
  }

  /** Returns true if the slot has the prepared routes. */
  isPrepared(slot: number): boolean {
    const at = this.#at(slot);
    return this.#next.every((value, index) => value === this.#routes[at + index]);
  }

  /** Writes the prepared routes, each with a single store. */
  write(slot: number): void {
    for (let index = 0; index < senders.length; index++) {
      Atomics.store(this.#words, slot * wordsPerSlot + index, this.#nextWords[index] ?? 0n);
    }
    this.#routes.set(this.#next, this.#at(slot));
  }

  /** Calls `visit` for the runs to which the routes of a slot lead, once for consecutive routes with the same run. */
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
