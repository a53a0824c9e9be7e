import type { RuleChange, RuleDifference, RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import { compareText, getOrMake } from "@kpng/model/collections.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { sharedSets } from "../layout/elements.ts";
import { describeFrontend, formatElement } from "../layout/format-element.ts";
import type { SharedSetChange } from "../render/element-table.ts";
import type { ServiceElements } from "../render/service-elements.ts";
import { ipOf } from "../render/skeleton.ts";

/** Changes that one call made to a table. */
export interface TableChange {
  readonly elements: readonly SharedSetChange[];
  /** Chains whose rules changed. */
  readonly chains: readonly string[];
}

/** Describes a change for log, metrics and inspection. */
export function makeNftChange(family: Family, mode: "partial" | "full", change: TableChange): RuleChange {
  const { elements, chains } = change;
  const count = (kind: "put" | "delete"): number =>
    elements.reduce((sum, step) => sum + (step.kind === kind ? step.elements.length : 0), 0);
  const [puts, deletes] = [count("put"), count("delete")];
  return {
    mode: puts + deletes + chains.length === 0 ? "none" : mode,
    fields: { puts, deletes, chains: chains.length, example: elements[0]?.set ?? chains[0] },
    differences: () => listDifferences(family, change),
  };
}

/** Formats changed elements as nft commands. *Shape of a line:* `add element ip kpng frontends { … }`. */
export function formatTransaction(family: Family, { elements }: Pick<TableChange, "elements">, table: string): string {
  const lines = elements.flatMap(({ kind, set, elements: changed }) => {
    const command = `${kind === "put" ? "add" : "delete"} element ${ipOf(family)} ${table}`;
    return Array.from(changed, ({ key, value }) => `${command} ${formatElement(family, set, key, value)}\n`);
  });
  return lines.join("");
}

/** Returns one difference for each changed set and chain. */
function listDifferences(family: Family, { elements, chains }: TableChange): readonly RuleDifference[] {
  const bySet = Map.groupBy(elements, ({ set }) => set);
  const ofKind = (changes: TableChange["elements"], kind: "put" | "delete"): readonly string[] =>
    changes
      .filter((change) => change.kind === kind)
      .flatMap(({ set, elements: changed }) =>
        Array.from(changed, ({ key, value }) => formatElement(family, set, key, value)),
      );
  return [
    ...[...bySet].map(([set, changes]) => ({
      summary: `set ${set}: elements differ`,
      missing: ofKind(changes, "put"),
      unwanted: ofKind(changes, "delete"),
      fields: { set },
    })),
    ...chains.map((chain) => ({
      summary: `chain ${chain}: rules differ`,
      missing: [],
      unwanted: [],
      fields: { chain },
    })),
  ];
}

/**
 * Lists the elements and chains of Services, each with the Service or port that it serves.
 *
 * *Shape of a line:* `frontends { 10.96.0.1 . tcp . 80 : 4000:200a } # ns/web:http: endpoints at 0:2000, 10 of them,
 * …` or `sticky_0123456789abcdef meta priority … # ns/web`. Rules that serve no single Service are not listed.
 *
 * `current` returns undefined as long as the elements are unknown.
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
  // Pick chains, to which the elements of `picks` lead, serve no single Service.
  const ofServices = sharedSets.filter((set) => set !== "picks");
  const ofSets = ofServices.reduce((sum, set) => sum + elements.table.elements(set).size, 0);
  return [...elements.chains.desired()].reduce((sum, { rules }) => sum + rules.length, ofSets);
}

function formatRules(family: Family, elements: ServiceElements, services: readonly ServiceKey[]): readonly string[] {
  const owners = new Map<string, Set<string>>();
  const addOwner = (what: string, owner: string): void => {
    getOrMake(owners, what, () => new Set()).add(owner);
  };
  const chains = new Map<string, readonly string[]>();
  for (const service of services) {
    for (const { set, key, owner } of elements.ownedBy(service)) {
      const value = elements.table.elements(set).get(key);
      if (value !== undefined)
        addOwner(formatElement(family, set, key, value), `${owner}${describeFrontend(set, value)}`);
    }
    for (const { name, rules } of elements.chainsOf(service)) {
      chains.set(name, rules);
      addOwner(name, service);
    }
  }
  return [...owners]
    .sort(([a], [b]) => compareText(a, b))
    .flatMap(([what, names]) => {
      const rules = chains.get(what)?.map((rule) => `${what} ${rule}`) ?? [what];
      return rules.map((rule) => `${rule} # ${[...names].join(", ")}`);
    });
}
