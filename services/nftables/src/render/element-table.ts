import { setImmediate as nextTurn } from "node:timers/promises";
import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import { getOrMake } from "@kpng/model/collections.ts";
import { type ElementBytes, type ElementValue, type SharedSet, setLayouts, sharedSets } from "../layout/elements.ts";
import type { ElementChange, ElementList, SetElement } from "../netlink/transaction.ts";

/** A change to the elements of one shared set. */
export type SharedSetChange = ElementChange & { readonly set: SharedSet };

/** Maximum number of characters in a comment: nft refuses longer ones, and the kernel stores the length in one byte. */
const maxCommentLength = 127;

/** Number of elements to compare, in about 5 ms, before the event loop gets a turn. */
const elementsPerTurn = 10_000;

/** The elements of one set. */
export interface Elements extends Iterable<readonly [ElementBytes, ElementValue]> {
  readonly size: number;
  has(key: ElementBytes): boolean;
  get(key: ElementBytes): ElementValue | undefined;
  keys(): Iterable<ElementBytes>;
}

interface MutableElements extends Elements {
  set(key: ElementBytes, value: ElementValue): unknown;
  delete(key: ElementBytes): unknown;
}

/**
 * The elements of a map of slots, whose keys are two numbers: a set and a slot in it. Nearly all elements of a table are
 * slots, and without their keys they take half of the memory.
 */
class SlotElements implements MutableElements {
  readonly #sets = new Map<number, (ElementValue | undefined)[]>();
  size = 0;

  get(key: ElementBytes): ElementValue | undefined {
    return this.#sets.get(readNumber(key))?.[readNumber(key, 4)];
  }

  has(key: ElementBytes): boolean {
    return this.get(key) !== undefined;
  }

  set(key: ElementBytes, value: ElementValue): void {
    if (!this.has(key)) this.size += 1;
    getOrMake(this.#sets, readNumber(key), () => [])[readNumber(key, 4)] = value;
  }

  delete(key: ElementBytes): void {
    const slots = this.#sets.get(readNumber(key));
    if (slots === undefined || !this.has(key)) return;
    this.size -= 1;
    slots[readNumber(key, 4)] = undefined;
    while (slots.length > 0 && slots.at(-1) === undefined) slots.pop();
    if (slots.length === 0) this.#sets.delete(readNumber(key));
  }

  *[Symbol.iterator](): Generator<readonly [ElementBytes, ElementValue], void, void> {
    for (const [set, slots] of this.#sets) {
      for (const [slot, value] of slots.entries()) {
        if (value !== undefined) yield [numberBytes(set) + numberBytes(slot), value];
      }
    }
  }

  *keys(): Generator<ElementBytes, void, void> {
    for (const [key] of this) yield key;
  }
}

const slotMaps: ReadonlySet<string> = new Set<SharedSet>(["slots", "sticky_slots"]);

/**
 * The elements that the sets of one table should have, and which of them have changed since the last commit.
 *
 * The table knows only keys and values; `EndpointSets`, `EndpointIds` and `ServiceElements` decide which elements there
 * are.
 *
 * Several Services may own the same element, e.g. a hairpin address, or a frontend that moves from one Service to
 * another if the new owner is put before the old one is deleted. The element stays until its last owner deletes it.
 *
 * *Memory:* about 50 bytes for a slot, 150 for each other element.
 */
export class ElementTable {
  readonly #elements = bySet((set): MutableElements => (slotMaps.has(set) ? new SlotElements() : new Map()));
  /** Sets that have no element in the kernel, so that all their elements are new. */
  #absent: Set<SharedSet> = new Set(sharedSets);
  /**
   * For each key of the other sets that was touched since the last commit, its value at the time of that commit;
   * undefined if it was absent.
   */
  readonly #before = bySet(() => new Map<ElementBytes, ElementValue | undefined>());
  /** Number of owners of each element that has more than one. */
  readonly #owners = new Map<string, number>();
  /** Comments of elements that were put since the last commit, keyed by set and key. */
  readonly #comments = new Map<string, string>();

  /** The elements that a set should have. */
  elements(set: SharedSet): Elements {
    return this.#elements[set];
  }

  /**
   * Sets the value of an element. `comment` is shown by `nft list` if the element has to be put into the kernel; a
   * longer one than {@link maxCommentLength} is cut off.
   */
  put(set: SharedSet, key: ElementBytes, value: ElementValue, comment?: string): void {
    // Also without a change: `compareWith` may have found that the element is missing in the kernel.
    if (comment !== undefined) this.#comments.set(`${set} ${key}`, comment.slice(0, maxCommentLength));
    const before = this.#elements[set].get(key);
    if (before === value) return;
    this.#touch(set, key, before);
    this.#elements[set].set(key, value);
  }

  /**
   * Adds an owner to an element, which takes the value given by the newest owner. Each call needs a matching
   * {@link delete}.
   */
  claim(set: SharedSet, key: ElementBytes, value: ElementValue, comment?: string): void {
    const owned = `${set} ${key}`;
    if (this.#elements[set].has(key)) this.#owners.set(owned, (this.#owners.get(owned) ?? 1) + 1);
    this.put(set, key, value, comment);
  }

  /** Removes one owner of an element, and deletes the element if that was the last one. */
  delete(set: SharedSet, key: ElementBytes): void {
    const owned = `${set} ${key}`;
    const owners = this.#owners.get(owned) ?? 1;
    if (owners > 1) {
      if (owners === 2) this.#owners.delete(owned);
      else this.#owners.set(owned, owners - 1);
      return;
    }
    const before = this.#elements[set].get(key);
    if (before === undefined) return;
    this.#touch(set, key, before);
    this.#elements[set].delete(key);
  }

  /**
   * Returns the changes that lead from the elements of the last commit to the desired ones; they are valid until the
   * next change. O(elements of `sets` that were touched since that commit).
   */
  changes(sets: readonly SharedSet[] = sharedSets): readonly SharedSetChange[] {
    return sets.flatMap((set): readonly SharedSetChange[] => {
      const { data } = setLayouts[set];
      if (this.#absent.has(set)) {
        const elements = this.#all(set);
        return elements.length === 0 ? [] : [{ set, kind: "put", data, elements }];
      }
      const deletes: SetElement[] = [];
      const puts: SetElement[] = [];
      for (const [key, before] of this.#before[set]) {
        const value = this.#elements[set].get(key);
        if (value === before) continue;
        if (before !== undefined) deletes.push({ key });
        if (value !== undefined) puts.push({ key, value, comment: this.#comments.get(`${set} ${key}`) });
      }
      return [
        ...(deletes.length === 0 ? [] : [{ set, kind: "delete", elements: deletes } as const]),
        ...(puts.length === 0 ? [] : [{ set, kind: "put", data, elements: puts } as const]),
      ];
    });
  }

  /** Declares that the kernel has the desired elements. Must be called after each commit. */
  committed(): void {
    this.#absent.clear();
    for (const set of sharedSets) this.#before[set].clear();
    this.#comments.clear();
  }

  /**
   * Declares that the kernel has these elements, e.g. after a failure or if another program has changed a set.
   * The next {@link changes} returns the changes that lead from them to the desired elements. O(all elements), with
   * turns for the event loop; no other method may be called before the promise resolves.
   */
  async compareWith(installed: Readonly<Record<SharedSet, ReadonlyMap<ElementBytes, ElementValue>>>): Promise<void> {
    let count = 0;
    this.#absent = new Set(sharedSets.filter((set) => installed[set].size === 0));
    for (const set of sharedSets) {
      const before = this.#before[set];
      before.clear();
      if (this.#absent.has(set)) continue;
      for (const [key, value] of installed[set]) {
        if (this.#elements[set].get(key) !== value) before.set(key, value);
        if (++count % elementsPerTurn === 0) await nextTurn();
      }
      for (const key of this.#elements[set].keys()) {
        if (!installed[set].has(key)) before.set(key, undefined);
        if (++count % elementsPerTurn === 0) await nextTurn();
      }
    }
  }

  /** Remembers the value that a key had at the last commit, before its first change since then. */
  #touch(set: SharedSet, key: ElementBytes, before: ElementValue | undefined): void {
    if (!this.#absent.has(set) && !this.#before[set].has(key)) this.#before[set].set(key, before);
  }

  /** All elements of a set, made while they are read: a first load has a million. */
  #all(set: SharedSet): ElementList {
    const [elements, comments] = [this.#elements[set], this.#comments];
    return {
      length: elements.size,
      *[Symbol.iterator]() {
        for (const [key, value] of elements) yield { key, value, comment: comments.get(`${set} ${key}`) };
      },
    };
  }
}

function bySet<Value>(make: (set: SharedSet) => Value): Readonly<Record<SharedSet, Value>> {
  return Object.fromEntries(sharedSets.map((set) => [set, make(set)])) as Record<SharedSet, Value>;
}
