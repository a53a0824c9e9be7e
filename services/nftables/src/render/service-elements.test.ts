import type { Family } from "@kpng/model/address.ts";
import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import { onRandomStates, randomState } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { packed, sharedSets, unpackSet } from "../layout/elements.ts";
import { putState } from "../testing/plans.ts";
import { stickyKey } from "./endpoint-sets.ts";
import { ServiceElements } from "./service-elements.ts";

const frontendMaps = ["frontends", "local_frontends", "nodeports", "local_nodeports"] as const;
const numbered: ReadonlySet<string> = new Set(["slots", "sticky_slots", "sticky_sets", "sticky_counts"]);

/** Results of all lookups, without the ids of sets: one text for each element. */
function lookups({ table }: ServiceElements): readonly string[] {
  const slotsOf = (map: "slots" | "sticky_slots", id: number): readonly string[] =>
    [...table.elements(map)].filter(([key]) => unpackSet(readNumber(key)).id === id).map(([, endpoint]) => endpoint);
  const found: string[] = [];
  for (const map of frontendMaps) {
    for (const [key, value] of table.elements(map)) {
      const { kind, id, count } = unpackSet(readNumber(value));
      const at = numberBytes(id * (packed.countMask + 1));
      const sticky = slotsOf("sticky_slots", id).map((id) => table.elements("sticky_addresses").get(stickyKey(id)));
      const leads =
        count === 0
          ? [table.elements("sticky_sets").get(at), table.elements("sticky_counts").get(at), ...sticky.toSorted()]
          : slotsOf("slots", id).toSorted();
      expect(count === 0 ? leads.length > 2 : leads.length === count).toBe(true);
      found.push(JSON.stringify([map, key, kind, leads]));
    }
  }
  for (const set of sharedSets) {
    if (frontendMaps.some((map) => map === set) || numbered.has(set)) continue;
    for (const element of table.elements(set)) found.push(JSON.stringify([set, ...element]));
  }
  return found.sort();
}

const chainNames = ({ chains }: ServiceElements) => Array.from(chains.desired(), ({ name }) => name).sort();

function make(family: Family): ServiceElements {
  return new ServiceElements({ family, name: "kpng" }, 1_000);
}

test("a history of changes leads to the same lookups and chains as the last state alone", () => {
  onRandomStates(60, (state, family) => {
    const [changed, fresh] = [make(family), make(family)];
    for (let seed = 1; seed <= 3; seed++) putState(changed, randomState(seed), family);
    putState(changed, state, family);
    putState(fresh, state, family);
    expect(lookups(changed)).toEqual(lookups(fresh));
    expect(chainNames(changed)).toEqual(chainNames(fresh));
  });
});

test("nothing stays when all Services are deleted", () => {
  onRandomStates(30, (state, family) => {
    const elements = make(family);
    putState(elements, state, family);
    for (const key of [...elements.services]) elements.put(key, undefined);
    expect(sharedSets.map((set) => elements.table.elements(set).size)).toEqual(sharedSets.map(() => 0));
    expect(chainNames(elements)).toEqual([]);
  });
});

test("the same state again changes no element", () => {
  onRandomStates(30, (state, family) => {
    const elements = make(family);
    putState(elements, state, family);
    elements.table.committed();
    putState(elements, state, family);
    expect(elements.table.changes()).toEqual([]);
  });
});
