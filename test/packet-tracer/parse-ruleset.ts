import { parseRule } from "./parse-rule.ts";
import type { Rule, Ruleset } from "./rule.ts";

/**
 * Parses the output of iptables-save, or the input of iptables-restore for a kernel without rules. `trace` then follows
 * packets through the result. `comparePackets` of shadow mode and tests call both.
 *
 * Separate from `parseRule`, which parses a single rule, and from `parseNftRuleset`, which parses rules of nft.
 *
 * Understands `*table`, `:CHAIN POLICY`, `-N`, `-A` and `-I`; throws for other lines that change rules. Built-in chains
 * that are not mentioned have no rules.
 */
export function parseRuleset(text: string): Ruleset {
  const tables = new Map<string, Map<string, Rule[]>>();
  let chains = new Map<string, Rule[]>();
  for (const line of text.split("\n")) {
    const [word = ""] = line.split(" ", 1);
    if (line === "" || line.startsWith("#") || line === "COMMIT") continue;
    if (word.startsWith("*")) {
      chains = tables.get(word.slice(1)) ?? new Map();
      tables.set(word.slice(1), chains);
    } else if (word.startsWith(":")) chains.set(word.slice(1), policyRules(line));
    else if (word === "-N") chains.set(line.split(" ")[1] ?? "", []);
    else if (word === "-A" || word === "-I") addRule(chains, line);
    else throw new Error(`not known to the tracer: ${line}`);
  }
  return tables;
}

/** Returns the policy of a chain as its last rule; none for ACCEPT. */
function policyRules(line: string): Rule[] {
  const isDrop = line.split(" ")[1] === "DROP";
  return isDrop ? [{ matches: [], target: { kind: "drop" }, isPolicy: true, text: "policy DROP" }] : [];
}

function addRule(chains: Map<string, Rule[]>, line: string): void {
  const [, option, chain = "", place, text = ""] = /^(-[AI]) (\S+)(?: (\d+))? (.*)$/.exec(line) ?? [];
  const rules = chains.get(chain) ?? [];
  chains.set(chain, rules);
  if (option === "-A") rules.splice(rules.at(-1)?.isPolicy === true ? -1 : rules.length, 0, parseRule(text));
  else rules.splice(Number(place ?? 1) - 1, 0, parseRule(text));
}
