import { hash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { KeyText } from "../layout/keys.ts";
import { sizes, slotPlaces } from "../layout/map-layouts.ts";
import { isBalancing, senders } from "../layout/routes.ts";
import { Spans } from "../tables/spans.ts";

const wordsPerSlot = sizes.slot / 8;
const connectionsWord = slotPlaces.connections / 8;
const serviceWord = slotPlaces.service / 8;
/** Numbers of 4 bytes in the routes of a frontend: of each, its flags with the id of its ranges, and its run. */
const routesLength = senders.length * 2;

/**
 * One family's half of map `slots`, which is mapped into memory: routes and connections of each frontend.
 * `FamilyTables` decides what is in it. Separate from it, because this class alone knows the memory, and keeps a copy
 * of the routes that were written: numbers, because a BigInt for each route was most of the garbage of a load.
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

  /**
   * Takes a free slot, and writes the key of its frontend and the Service that it counts for. Returns undefined if
   * there is none.
   */
  take(key: KeyText, service: ServiceKey): number | undefined {
    const slot = this.#free.take(1);
    if (slot === undefined) return undefined;
    this.#memory.write(key, slot * sizes.slot + slotPlaces.key, "latin1");
    // A process that was killed may have left connections here.
    this.#words[slot * wordsPerSlot + connectionsWord] = 0n;
    this.setService(slot, service);
    return slot;
  }

  /** Gives a slot back that no program reads any more. A free slot has no routes: see `findDamage`. */
  give(slot: number): void {
    this.#words.fill(0n, slot * wordsPerSlot, (slot + 1) * wordsPerSlot);
    this.#free.give(slot, 1);
  }

  /** Returns the run that a route of a slot leads to; 0 for none. `index` is that of the sender. */
  runOf(slot: number, index: number): number {
    return this.#routes[this.#at(slot) + index * 2 + 1] ?? 0;
  }

  /** Prepares a route for {@link write}. `ranges` and `run` are 0 if it has none. */
  prepare(index: number, flags: number, ranges: number, run: number): void {
    this.#next[index * 2] = flags | (ranges << 8);
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

  /** Calls `visit` for what the routes of a slot lead to, once for routes in a row that are alike. */
  eachUse(slot: number, visit: (run: number, ranges: number) => void): void {
    const at = this.#at(slot);
    let [lastRun, lastRanges] = [0, 0];
    for (let index = at; index < at + routesLength; index += 2) {
      const [low = 0, run = 0] = [this.#routes[index], this.#routes[index + 1]];
      const ranges = low >>> 8;
      if (!isBalancing(low) || (run === lastRun && ranges === lastRanges)) continue;
      visit(run, ranges);
      [lastRun, lastRanges] = [run, ranges];
    }
  }

  /** Number of connections and flows that programs gave to an endpoint of the frontend. */
  connections(slot: number): number {
    return Number(this.#words[slot * wordsPerSlot + connectionsWord]);
  }

  /** Returns false if the connections of a slot were counted for another Service, e.g. by an earlier process. */
  mayBeOf(slot: number, service: ServiceKey): boolean {
    const known = this.#words[slot * wordsPerSlot + serviceWord];
    return known === 0n || known === hashOf(service);
  }

  /** Notes the Service that a slot counts for, also for later processes. */
  setService(slot: number, service: ServiceKey): void {
    this.#words[slot * wordsPerSlot + serviceWord] = hashOf(service);
  }

  /** Adds the connections of a slot to another one; to none, if that is undefined. */
  moveConnections(slot: number, to: number | undefined): void {
    const count = Atomics.exchange(this.#words, slot * wordsPerSlot + connectionsWord, 0n);
    if (to !== undefined) Atomics.add(this.#words, to * wordsPerSlot + connectionsWord, count);
  }

  #at(slot: number): number {
    return (slot - this.#first) * routesLength;
  }
}

/** A key has no limit of length that a slot could hold. */
function hashOf(service: ServiceKey): bigint {
  return hash("sha256", service, "buffer").readBigUInt64LE(0);
}
