import type { RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { ServiceElements } from "../elements/service-elements.ts";
import { describeFrontend, formatElement } from "../layout/format-element.ts";
import { sharedSets } from "../layout/set-names.ts";

/**
 * Lists the elements and chains of Services, each with what it serves. `NftRuleSet` implements its two lists with it,
 * the desired and the installed rules; the inspection of backend-kit shows them for `kpng get rules`.
 *
 * *Shape of a line:* `frontends { 10.96.0.1 . tcp . 80 : 4000:200a } # ns/web:http: set 0:2000, 10 endpoints, …` or
 * `sticky_0123456789abcdef meta priority … # ns/web`. Rules that serve no single Service are not listed.
 *
 * `current` returns undefined while nothing is known.
 */
export function listRules(family: Family, current: () => ServiceElements | undefined): RuleList {
  return {
    count: () => countRules(current()),
    lines: () => {
      const elements = current();
      return elements === undefined ? [] : formatRules(family, elements, [...elements.services]);
    },
    linesOf: (service) => {
      const elements = current();
      return elements === undefined ? [] : formatRules(family, elements, [service]);
    },
  };
}

function countRules(elements: ServiceElements | undefined): number {
  if (elements === undefined) return 0;
  const ofServices = sharedSets.filter((set) => set !== "picks" && set !== "record");
  const ofSets = ofServices.reduce((sum, set) => sum + elements.table.elements(set).size, 0);
  return [...elements.chains.wanted()].reduce((sum, { rules }) => sum + rules.length, ofSets);
}

function formatRules(family: Family, elements: ServiceElements, services: readonly ServiceKey[]): readonly string[] {
  const owners = new Map<string, Set<string>>();
  const own = (what: string, owner: string): void => {
    const known = owners.get(what);
    if (known === undefined) owners.set(what, new Set([owner]));
    else known.add(owner);
  };
  const chains = new Map<string, readonly string[]>();
  for (const service of services) {
    for (const { set, key, owner } of elements.ownedBy(service)) {
      const value = elements.table.elements(set).get(key);
      if (value !== undefined) own(formatElement(family, set, key, value), `${owner}${describeFrontend(set, value)}`);
    }
    for (const { name, rules } of elements.chainsOf(service)) {
      chains.set(name, rules);
      own(name, service);
    }
  }
  return [...owners].sort(compareFirst).flatMap(([what, names]) => {
    const rules = chains.get(what)?.map((rule) => `${what} ${rule}`) ?? [what];
    return rules.map((rule) => `${rule} # ${[...names].join(", ")}`);
  });
}

function compareFirst([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return compareText(a, b);
}
