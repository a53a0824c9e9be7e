import { setImmediate as nextTurn } from "node:timers/promises";
import { dataOf, type ElementBytes, type ElementValue, type SharedSet, sharedSets } from "../layout/elements.ts";
import type { ElementChange, ElementData, SetElement } from "../netlink/transaction.ts";

/** A change to the elements of one shared set. */
export type SharedSetChange = ElementChange & { readonly set: SharedSet };

/** Maximum number of characters in a comment: nft refuses longer ones, and the kernel stores the length in one byte. */
const maxCommentLength = 127;

/** Number of elements to compare, in about 5 ms, before the event loop gets a turn. */
const elementsPerTurn = 10_000;

type Elements = Map<ElementBytes, ElementValue>;

/**
 * The elements that the sets of one table should have, and which of them have changed since the last commit.
 *
 * The table knows only keys and values; `EndpointSets`, `EndpointIds` and `ServiceElements` decide which elements there
 * are.
 *
 * Several Services may own the same element, e.g. a hairpin address, or a frontend that moves from one Service to
 * another if the new owner is put before the old one is deleted. The element stays until its last owner deletes it.
 *
 * *Memory:* about 150 bytes for each element.
 */
export class ElementTable {
  readonly #elements: Readonly<Record<SharedSet, Elements>> = bySet(() => new Map());
  /**
   * For each key that was touched since the last commit, its value at the time of that commit; undefined if it was
   * absent.
   */
  readonly #before: Readonly<Record<SharedSet, Map<ElementBytes, ElementValue | undefined>>> = bySet(() => new Map());
  /** Number of owners of each element that has more than one. */
  readonly #owners = new Map<string, number>();
  /** Comments of elements that were put since the last commit, keyed by set and key. */
  readonly #comments = new Map<string, string>();

  /** The elements that a set should have. */
  elements(set: SharedSet): ReadonlyMap<ElementBytes, ElementValue> {
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
   * Returns the changes that lead from the elements of the last commit to the desired ones. O(elements touched since
   * that commit).
   */
  changes(): readonly SharedSetChange[] {
    return sharedSets.flatMap((set) => {
      const deletes: SetElement[] = [];
      const puts: SetElement[] = [];
      for (const [key, before] of this.#before[set]) {
        const now = this.#elements[set].get(key);
        if (now === before) continue;
        if (before !== undefined) deletes.push({ key });
        if (now !== undefined) puts.push(toElement(set, key, now, this.#comments.get(`${set} ${key}`)));
      }
      return [
        ...(deletes.length === 0 ? [] : [{ set, kind: "delete" as const, elements: deletes }]),
        ...(puts.length === 0 ? [] : [{ set, kind: "put" as const, elements: puts }]),
      ];
    });
  }

  /** Returns the values of the elements that {@link changes} puts. */
  *newValues(): Generator<readonly [set: SharedSet, value: ElementValue], void, void> {
    for (const set of sharedSets) {
      for (const [key, before] of this.#before[set]) {
        const now = this.#elements[set].get(key);
        if (now !== undefined && now !== before) yield [set, now];
      }
    }
  }

  /** Declares that the kernel has the desired elements. Must be called after each commit. */
  committed(): void {
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
    for (const set of sharedSets) {
      const before = this.#before[set];
      before.clear();
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
    if (!this.#before[set].has(key)) this.#before[set].set(key, before);
  }
}

function bySet<Value>(make: () => Value): Record<SharedSet, Value> {
  return Object.fromEntries(sharedSets.map((set) => [set, make()])) as Record<SharedSet, Value>;
}

function toElement(set: SharedSet, key: ElementBytes, value: ElementValue, comment: string | undefined): SetElement {
  return { key, data: toData(set, value), comment };
}

function toData(set: SharedSet, value: ElementValue): ElementData | undefined {
  const kind = dataOf[set];
  switch (kind) {
    case "none":
      return undefined;
    case "value":
      return { kind: "value", bytes: value };
    case "goto":
    case "jump":
      return { kind, chain: value };
  }
}
