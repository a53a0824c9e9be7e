import { type ChainBody, type ChainId, chainId, type Table, tables } from "../render/table.ts";
import type { RulesetChange } from "./diff-chains.ts";

/** What is otherwise in one chain than it should be. */
export interface ChainDifference {
  readonly table: Table;
  readonly chain: string;
  /** jumps: of a built-in chain, to ours. order: the same rules in another order. */
  readonly kind: "missing" | "unwanted" | "changed" | "order" | "jumps";
  /** Rules that should stand and do not, each what follows `-A CHAIN `. */
  readonly missing: readonly string[];
  /** Rules that stand and should not. */
  readonly unwanted: readonly string[];
}

/**
 * Says what a change would do to what stands, rule by rule.
 *
 * Rules that mean the same are the same, whatever their text. Pure; O(rules of the chains that change).
 */
export function listDifferences(
  change: RulesetChange,
  standing: ReadonlyMap<ChainId, ChainBody>,
  canonical: (rule: string) => string,
): readonly ChainDifference[] {
  return tables.flatMap((table) => {
    const { puts, deletes, jumps } = change[table];
    return [
      ...puts.map(({ chain, body }) =>
        compareChain(table, chain, standing.get(chainId(table, chain)), body, canonical),
      ),
      ...deletes.map((chain): ChainDifference => {
        const unwanted = rulesOf(chain, standing.get(chainId(table, chain)) ?? "");
        return { table, chain, kind: "unwanted", missing: [], unwanted };
      }),
      ...jumpDifferences(table, jumps),
    ];
  });
}

function compareChain(
  table: Table,
  chain: string,
  have: ChainBody | undefined,
  want: ChainBody,
  canonical: (rule: string) => string,
): ChainDifference {
  const [haveRules, wantRules] = [rulesOf(chain, have ?? ""), rulesOf(chain, want)];
  const missing = without(wantRules, haveRules, canonical);
  const unwanted = without(haveRules, wantRules, canonical);
  if (have === undefined) return { table, chain, kind: "missing", missing, unwanted };
  const kind = missing.length + unwanted.length === 0 ? "order" : "changed";
  return { table, chain, kind, missing, unwanted };
}

/** The rules of `a` that `b` does not have, one for one. */
function without(a: readonly string[], b: readonly string[], canonical: (rule: string) => string): readonly string[] {
  const counts = new Map<string, number>();
  for (const rule of b) counts.set(canonical(rule), (counts.get(canonical(rule)) ?? 0) + 1);
  return a.filter((rule) => {
    const left = counts.get(canonical(rule)) ?? 0;
    counts.set(canonical(rule), left - 1);
    return left <= 0;
  });
}

function rulesOf(chain: string, body: ChainBody): readonly string[] {
  const start = `-A ${chain} `.length;
  return body === ""
    ? []
    : body
        .slice(0, -1)
        .split("\n")
        .map((line) => line.slice(start));
}

/** *Shape of the lines:* see `diff-jumps.ts`. */
function jumpDifferences(table: Table, lines: readonly string[]): readonly ChainDifference[] {
  const chains = new Set(lines.map((line) => line.split(" ")[1] ?? ""));
  return [...chains].map((chain) => {
    const rules = (start: string) =>
      lines.filter((line) => line.startsWith(start)).map((line) => line.slice(start.length));
    // They are put in from the last to the first.
    const wanted = rules(`-I ${chain} 1 `).toReversed();
    const had = rules(`-D ${chain} `);
    const missing = wanted.filter((rule) => !had.includes(rule));
    const unwanted = had.filter((rule) => !wanted.includes(rule));
    return { table, chain, kind: missing.length + unwanted.length === 0 ? "order" : "jumps", missing, unwanted };
  });
}
