import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import { makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import { maxEndpoints, maxSetId, unpackSet } from "../layout/elements.ts";
import { ElementTable } from "./element-table.ts";
import { EndpointIds, EndpointSets } from "./endpoint-sets.ts";

/** Endpoints of each set in the table by id. Fails if the slots of a set have a hole. */
function slotsOf(table: ElementTable): ReadonlyMap<number, readonly string[]> {
  const found = new Map<number, string[]>();
  for (const [key, endpoint] of table.elements("slots")) {
    const { id } = unpackSet(readNumber(key));
    const slots = found.get(id) ?? [];
    slots[readNumber(key, 4)] = endpoint;
    found.set(id, slots);
  }
  for (const slots of found.values()) expect(Object.keys(slots)).toHaveLength(slots.length);
  return found;
}

function changedSlots(table: ElementTable): number {
  const keys = new Set<string>();
  for (const { elements } of table.changes()) for (const { key } of elements) keys.add(key.toString());
  return keys.size;
}

test("over random histories, slots have no holes, hold the desired endpoints, and change as little as possible", () => {
  const first = Number(process.env.KPNG_NFT_SEED ?? Math.floor(Math.random() * 2 ** 31));
  for (let seed = first; seed < first + 50; seed++) {
    const random = makeRandom(seed);
    const below = makeRandomBelow(random);
    const table = new ElementTable();
    const sets = new EndpointSets(table);
    const desired = new Map<string, readonly string[]>();
    for (let step = 0; step < 60; step++) {
      const name = `set ${below(4)}`;
      const before = desired.get(name) ?? [];
      const after = Array.from({ length: 12 }, (_, at) => numberBytes(at)).filter(() => random() < 0.5);
      table.committed();
      if (after.length === 0 || random() < 0.1) {
        sets.delete(name);
        desired.delete(name);
        continue;
      }
      desired.set(name, after);
      const { id, count } = sets.put(name, "slots", after);
      const message = `KPNG_NFT_SEED=${seed}, step ${step}`;
      expect(count, message).toBe(after.length);
      const slots = slotsOf(table);
      expect([...(slots.get(id) ?? [])].sort(), message).toEqual([...after].sort());
      expect(slots.size, message).toBe(desired.size);
      const added = after.filter((endpoint) => !before.includes(endpoint)).length;
      const removed = before.filter((endpoint) => !after.includes(endpoint)).length;
      // A removal without a newcomer deletes the last slot, and moves its endpoint into the hole.
      expect(changedSlots(table), message).toBeLessThanOrEqual(Math.max(added, removed) + Math.max(0, removed - added));
    }
  }
});

test("an id of a deleted set is not given to the next set", () => {
  const sets = new EndpointSets(new ElementTable());
  const first = sets.put("a", "slots", [numberBytes(1)]).id;
  sets.delete("a");
  expect(sets.put("b", "slots", [numberBytes(1)]).id).not.toBe(first);
});

test("an adopted set keeps its id and slots", () => {
  const table = new ElementTable();
  const sets = new EndpointSets(table);
  sets.adopt("a", "slots", 7, [numberBytes(2), numberBytes(1)]);
  table.committed();
  expect(sets.put("a", "slots", [numberBytes(1), numberBytes(2)])).toEqual({ id: 7, count: 2 });
  expect(table.changes()).toEqual([]);
  expect(sets.put("b", "slots", [numberBytes(1)]).id).toBe(8);
});

test("endpoints beyond the largest count are left out", () => {
  const sets = new EndpointSets(new ElementTable());
  const many = Array.from({ length: maxEndpoints + 10 }, (_, at) => numberBytes(at));
  expect(sets.put("a", "slots", many).count).toBe(maxEndpoints);
});

test("a table of an earlier run that has given out the last id leaves the unused ids for new sets", () => {
  const sets = new EndpointSets(new ElementTable());
  sets.adopt("old", "slots", 1, [numberBytes(1)]);
  sets.adopt("newest", "slots", maxSetId, [numberBytes(2)]);
  const ids = ["a", "b"].map((name) => sets.put(name, "slots", [numberBytes(3)]).id);
  expect(ids).toEqual([2, 3]);
  sets.delete("old");
  expect(sets.put("c", "slots", [numberBytes(3)]).id).toBe(4);
});

test("a new set gets none of the ids that an earlier run left in the kernel while there are others", () => {
  const idsAfter = (left: readonly number[], count: number) => {
    const sets = new EndpointSets(new ElementTable());
    sets.adopt("old", "slots", 1, [numberBytes(1)]);
    sets.avoid(new Set([1, ...left]));
    return Array.from({ length: count }, (_, at) => sets.put(`new ${at}`, "slots", [numberBytes(2)]).id);
  };
  expect(idsAfter([7], 2)).toEqual([8, 9]);
  expect(idsAfter([2, maxSetId], 2)).toEqual([3, 4]);
});

test("an endpoint has its id until each owner has released it", () => {
  const ids = new EndpointIds(new ElementTable());
  const endpoint = numberBytes(1);
  const id = ids.add("set", endpoint);
  expect(ids.add("set", endpoint)).toBe(id);
  ids.release("set", endpoint);
  expect(ids.keyOf("set", endpoint)).toBe(`${id}${id}`);
  ids.release("set", endpoint);
  expect(ids.keyOf("set", endpoint)).toBeUndefined();
});
