import { expect, test } from "vitest";
import { numberBytes, type SharedSet, sharedSets } from "../layout/elements.ts";
import { ServiceElements } from "../render/service-elements.ts";
import { pickChain } from "../render/skeleton.ts";
import { ChangingPlan } from "../testing/plans.ts";
import { type ActualElements, findDamage } from "./read-table.ts";

const chains = ["nat_prerouting", "nat_output", "services", "balance_frontends", "pick"];
const rules = new Map(chains.map((name) => [name, ["a rule"]]));

/** The elements of two Services, one of them with affinity, without those of some sets. */
function elementsWithout(...lost: readonly SharedSet[]): ActualElements {
  const plan = new ChangingPlan("v4");
  plan.set("ns/web-1", 3);
  plan.set("ns/sticky-2", 2);
  const elements = new ServiceElements({ family: "v4", name: "kpng" }, 1_000);
  for (const key of plan.keys()) elements.put(key, plan.service(key));
  const { table } = elements;
  for (const count of [2, 3]) table.put("picks", numberBytes(count), pickChain(count));
  const left = sharedSets.map((set) => [set, lost.includes(set) ? new Map() : table.elements(set)] as const);
  return Object.fromEntries(left) as Record<SharedSet, ReturnType<typeof table.elements>>;
}

test("our own rules have no damage, with and without Services", () => {
  expect(findDamage(rules, elementsWithout())).toBeUndefined();
  expect(findDamage(rules, elementsWithout(...sharedSets))).toBeUndefined();
});

test.each([
  ["slots", "map frontends leads to set 1, which has no endpoint"],
  ["picks", "map frontends leads to set 1, which has no endpoint"],
  ["sticky_sets", /^map frontends leads to set \d, which has no endpoint$/],
  ["sticky_slots", /^map frontends leads to set \d, which has no endpoint$/],
  ["frontends", "there are endpoints and no frontends"],
] as const)("an emptied map %s is damage", (set, damage) => {
  expect(findDamage(rules, elementsWithout(set))).toMatch(damage);
});

test.each(chains)("chain %s without rules is damage", (chain) => {
  const damaged = new Map([...rules].filter(([name]) => name !== chain));
  expect(findDamage(damaged, elementsWithout())).toBe(`chain ${chain} has no rules`);
});
