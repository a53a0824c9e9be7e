import { asList, asNumber, asObject, asText, type Json, kindOf, NotUnderstood } from "./nft-json.ts";
import type { NamedSet } from "./nft-match.ts";
import { parseNftRule } from "./parse-nft-rule.ts";
import type { Rule, Ruleset } from "./rule.ts";

/** A base chain: one that the kernel sends packets to. */
interface BaseChain {
  readonly name: string;
  readonly place: string;
  readonly priority: number;
}

/**
 * Parses the output of `nft -j list table` for one table of kube-proxy's nftables mode, into the form that `trace`
 * follows packets through. `comparePackets` of shadow mode and tests call it. Separate from `parseRuleset`, which
 * parses rules of iptables mode.
 *
 * The base chains become jumps in the built-in chains of iptables, in the order of their priorities: filter chains at
 * prerouting, and at output before DNAT, come first in table nat. Kube-proxy's base chains never accept, so that order
 * is all that matters. Errors: text that is not JSON, a base chain at another hook or with another policy than accept.
 */
export function parseNftRuleset(text: string): Ruleset {
  const objects = asList(asObject(JSON.parse(text) as Json).nftables).map(kindOf);
  const sets = new Map<string, NamedSet>();
  for (const [kind, content] of objects) if (kind === "set" || kind === "map") addSet(sets, asObject(content));
  const chains = new Map<string, Rule[]>();
  const bases: BaseChain[] = [];
  for (const [kind, content] of objects) {
    if (kind !== "chain") continue;
    const chain = asObject(content);
    chains.set(asText(chain.name), []);
    if (chain.hook !== undefined) bases.push(parseBase(chain));
  }
  for (const [kind, content] of objects) {
    if (kind !== "rule") continue;
    const { chain, expr } = asObject(content);
    for (const rule of parseNftRule(asList(expr), sets)) chains.get(asText(chain))?.push(rule);
  }
  const tables = ["nat", "filter"].map((table) => [table, new Map(chains)] as const);
  for (const { name, place } of bases.toSorted((a, b) => a.priority - b.priority)) {
    const [table = "", chain = ""] = place.split("/");
    const rules = new Map(tables).get(table);
    const jump: Rule = { matches: [], target: { kind: "jump", chain: name, isGoto: false }, text: `jump ${name}` };
    rules?.set(chain, [...(rules.get(chain) ?? []), jump]);
  }
  return new Map(tables);
}

function addSet(sets: Map<string, NamedSet>, { name, elem, timeout }: Readonly<Record<string, Json>>): void {
  const timeoutSeconds = timeout === undefined ? undefined : asNumber(timeout);
  sets.set(asText(name), { elements: elem === undefined ? [] : asList(elem), timeoutSeconds });
}

/** The priority at which the kernel translates destinations. */
const dnatPriority = -100;

function parseBase(chain: Readonly<Record<string, Json>>): BaseChain {
  const [name, hook, priority] = [asText(chain.name), asText(chain.hook).toUpperCase(), asNumber(chain.prio)];
  const isBeforeRouting = hook === "PREROUTING" || (hook === "OUTPUT" && priority <= dnatPriority);
  const table = isBeforeRouting || hook === "POSTROUTING" ? "nat" : "filter";
  if (chain.policy !== "accept" || hook === "INGRESS") throw new NotUnderstood(chain);
  return { name, place: `${table}/${hook}`, priority };
}
