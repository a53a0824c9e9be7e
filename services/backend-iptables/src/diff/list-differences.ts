import { canonicalRule } from "../read/canonical-rule.ts";
import { type ChainBody, type ChainId, chainId, type Table, tables } from "../render/rule.ts";
import type { RulesetChange } from "./diff-chains.ts";

/** A difference between an installed chain and the wanted chain, for `--diff` and inspection. */
export interface ChainDifference {
  readonly table: Table;
  readonly chain: string;
  /** "jumps": jumps of a built-in chain to our chains. "order": the same rules in another order. */
  readonly kind: "missing" | "unwanted" | "changed" | "order" | "jumps";
  /** Wanted rules that are not installed, each without `-A CHAIN `. */
  readonly missing: readonly string[];
  /** Installed rules that are not wanted, each without `-A CHAIN `. */
  readonly unwanted: readonly string[];
}

/**
 * Lists the rules that a change would add to the installed chains or remove from them.
 *
 * Two rules with the same canonical text count as the same rule. Pure; O(rules of the chains that change).
 */
export function listDifferences(
  change: RulesetChange,
  installed: ReadonlyMap<ChainId, ChainBody>,
): readonly ChainDifference[] {
  return tables.flatMap((table) => {
    const { puts, deletes, jumps } = change[table];
    return [
      ...puts.map(({ chain, body }) => compareChain(table, chain, installed.get(chainId(table, chain)), body)),
      ...deletes.map((chain): ChainDifference => {
        const unwanted = rulesOf(chain, installed.get(chainId(table, chain)) ?? "");
        return { table, chain, kind: "unwanted", missing: [], unwanted };
      }),
      ...jumpDifferences(table, jumps),
    ];
  });
}

function compareChain(
  table: Table,
  chain: string,
  installed: ChainBody | undefined,
  wanted: ChainBody,
): ChainDifference {
  const [installedRules, wantedRules] = [rulesOf(chain, installed ?? ""), rulesOf(chain, wanted)];
  const missing = without(wantedRules, installedRules);
  const unwanted = without(installedRules, wantedRules);
  if (installed === undefined) return { table, chain, kind: "missing", missing, unwanted };
  const kind = missing.length + unwanted.length === 0 ? "order" : "changed";
  return { table, chain, kind, missing, unwanted };
}

/** Returns the rules of `a` that `b` lacks. If `a` has a rule twice and `b` has it once, it is returned once. */
function without(a: readonly string[], b: readonly string[]): readonly string[] {
  const counts = new Map<string, number>();
  for (const rule of b) counts.set(canonicalRule(rule), (counts.get(canonicalRule(rule)) ?? 0) + 1);
  return a.filter((rule) => {
    const left = counts.get(canonicalRule(rule)) ?? 0;
    counts.set(canonicalRule(rule), left - 1);
    return left <= 0;
  });
}

/** Returns the rules of a chain without `-A CHAIN `. */
function rulesOf(chain: string, body: ChainBody): readonly string[] {
  const start = `-A ${chain} `.length;
  return body === ""
    ? []
    : body
        .slice(0, -1)
        .split("\n")
        .map((line) => line.slice(start));
}

/** Lists the differences of jumps. `lines` are lines of `diffJumps`, which would remove these differences. */
function jumpDifferences(table: Table, lines: readonly string[]): readonly ChainDifference[] {
  const chains = new Set(lines.map((line) => line.split(" ")[1] ?? ""));
  return [...chains].map((chain) => {
    const rules = (start: string) =>
      lines.filter((line) => line.startsWith(start)).map((line) => line.slice(start.length));
    // The lines insert the jumps from the last to the first.
    const wanted = rules(`-I ${chain} 1 `).toReversed();
    const had = rules(`-D ${chain} `);
    const missing = wanted.filter((rule) => !had.includes(rule));
    const unwanted = had.filter((rule) => !wanted.includes(rule));
    return { table, chain, kind: missing.length + unwanted.length === 0 ? "order" : "jumps", missing, unwanted };
  });
}
