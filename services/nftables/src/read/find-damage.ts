import { numberBytes, readNumber } from "../layout/element-keys.ts";
import { packed, unpackSet } from "../layout/packed-set.ts";
import type { SharedSet } from "../layout/set-names.ts";
import { firstHook } from "../render/skeleton.ts";
import type { RulesByChain } from "./compare-rules.ts";
import type { ActualElements } from "./read-table.ts";

/** Chains on the way of every packet to a Service. Every release gives them rules. */
const essentialChains = [firstHook, "nat_output", "services", "balance_frontends", "pick"];

const frontendMaps: readonly SharedSet[] = ["frontends", "local_frontends", "nodeports", "local_nodeports"];

/**
 * Returns a sign that packets to Services get lost, whichever Services the table is for: a chain without rules on the
 * way of every packet, a frontend that leads to no endpoint, or endpoints without any frontend. Undefined if there is
 * no such sign. Pure; O(elements).
 *
 * `NftRuleSet` calls it for a table that it must not repair. Other damage is found only by a comparison with a view.
 */
export function findDamage(rules: RulesByChain, elements: ActualElements): string | undefined {
  const empty = essentialChains.find((name) => (rules.get(name)?.length ?? 0) === 0);
  if (empty !== undefined) return `chain ${empty} has no rules`;
  const { slots, sticky_slots, sticky_sets, picks } = elements;
  const hasFrontends = frontendMaps.some((map) => elements[map].size > 0);
  if (!hasFrontends && slots.size + sticky_slots.size > 0) return "there are endpoints and no frontends";
  for (const map of frontendMaps) {
    for (const value of elements[map].values()) {
      const { id, count } = unpackSet(readNumber(value));
      const key = numberBytes(id * packed.firstId);
      // With affinity, a chain of the set chooses among the slots.
      const isComplete =
        count === 0
          ? sticky_sets.has(key) && sticky_slots.has(key + numberBytes(0))
          : picks.has(numberBytes(count)) && slots.has(key + numberBytes(0)) && slots.has(key + numberBytes(count - 1));
      if (!isComplete) return `map ${map} leads to set ${id}, which has no endpoint`;
    }
  }
  return undefined;
}
