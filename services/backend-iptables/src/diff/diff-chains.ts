import type { RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import { areSameRules, canonicalRule } from "../read/canonical-rule.ts";
import { type ChainBody, type ChainId, chainId, rulesOf, splitChainId, type Table, tables } from "../render/rule.ts";

/** Changes to one table. All lists are empty if nothing changes. */
export interface TableChange {
  /** New chains and chains whose rules changed, each with all its rules. */
  readonly puts: readonly { readonly chain: string; readonly body: ChainBody }[];
  /** Names of chains to delete. */
  readonly deletes: readonly string[];
  /** Lines that insert our jumps at the beginning of built-in chains, or delete them: `-I INPUT 1 …`, `-D INPUT …`. */
  readonly jumps: readonly string[];
}

/** Changes to all tables of one family. `transactionText` turns them into the input of iptables-restore. */
export type RulesetChange = Readonly<Record<Table, TableChange>>;

/**
 * Returns the changes that turn the chains in the kernel into the desired chains. It compares only the chains in `ids`.
 *
 * `committed` contains the chains in the kernel. Jumps from built-in chains are compared separately by `diffJumps`,
 * because other programs' rules in these chains must stay; its result is a parameter.
 *
 * Pure; O(ids). Equal chains cause no change.
 */
export function diffChains(
  committed: ReadonlyMap<ChainId, ChainBody>,
  desired: ReadonlyMap<ChainId, ChainBody>,
  ids: Iterable<ChainId>,
  jumps: Readonly<Record<Table, readonly string[]>> = { filter: [], nat: [] },
): RulesetChange {
  const puts = { filter: [] as { chain: string; body: ChainBody }[], nat: [] as { chain: string; body: ChainBody }[] };
  const deletes = { filter: [] as string[], nat: [] as string[] };
  for (const id of ids) {
    const body = desired.get(id);
    if (body === committed.get(id)) continue;
    const { table, chain } = splitChainId(id);
    if (body === undefined) deletes[table].push(chain);
    else puts[table].push({ chain, body });
  }
  const of = (table: Table): TableChange => ({ puts: puts[table], deletes: deletes[table], jumps: jumps[table] });
  return { filter: of("filter"), nat: of("nat") };
}

/** Whether a change to all tables has no effect. */
export function isEmptyChange(change: RulesetChange): boolean {
  return tables.every((table) => isEmptyTable(change[table]));
}

function isEmptyTable({ puts, deletes, jumps }: TableChange): boolean {
  return puts.length + deletes.length + jumps.length === 0;
}

/**
 * Returns the transaction lines after which each built-in chain has exactly the desired jumps, in the desired order.
 *
 * If a chain has exactly the desired jumps, they stay where they are, even after rules of other programs; otherwise
 * another program that also wants to be first would move its rules again after each of our moves. If a jump is missing,
 * duplicated or in the wrong order, all jumps are deleted and inserted again at the beginning of the chain.
 */
export function diffJumps(
  installed: ReadonlyMap<ChainId, readonly string[]>,
  desired: ReadonlyMap<ChainId, readonly string[]>,
): Readonly<Record<Table, readonly string[]>> {
  const lines = { filter: [] as string[], nat: [] as string[] };
  for (const id of new Set([...installed.keys(), ...desired.keys()])) {
    const [have, want] = [installed.get(id) ?? [], desired.get(id) ?? []];
    if (areSameRules(have, want)) continue;
    const { table, chain } = splitChainId(id);
    lines[table].push(...have.map((rule) => `-D ${chain} ${rule}`));
    // Each line inserts its jump at the beginning of the chain, so the last line must insert the first jump.
    lines[table].push(...want.toReversed().map((rule) => `-I ${chain} 1 ${rule}`));
  }
  return lines;
}

const nothing: TableChange = { puts: [], deletes: [], jumps: [] };

/** Kinds of chains that Services have, ordered so that each kind jumps only to earlier kinds. */
const kinds = ["MARK-MASQ", "SVC-", "SVL-", "EXT-", "FW-"];

/**
 * Splits a large change into several transactions. Only the last one affects packets: the others create chains that no
 * rule jumps to yet.
 *
 * For each rule, iptables-nft searches all new chains in its input, so its time is quadratic: 10 000 chains take
 * several times as long in one transaction as in transactions of `maxChains`. A process that is killed between two
 * transactions leaves unused chains, which the next start adopts.
 *
 * A change must not be split for iptables-legacy, which reads and writes the whole table in every transaction.
 *
 * Pure. A change with at most `maxChains` new chains is returned unchanged.
 */
export function splitChange(
  change: RulesetChange,
  committed: ReadonlyMap<ChainId, ChainBody>,
  prefix: string,
  maxChains: number,
): readonly RulesetChange[] {
  const rank = (chain: string): number => kinds.findIndex((kind) => chain.startsWith(prefix + kind));
  const isEarly = (chain: string): boolean => rank(chain) >= 0 && !committed.has(chainId("nat", chain));
  const { puts } = change.nat;
  const early = puts.filter(({ chain }) => isEarly(chain)).sort((a, b) => rank(a.chain) - rank(b.chain));
  if (early.length <= maxChains) return [change];
  const pieces: RulesetChange[] = [];
  for (let at = 0; at < early.length; at += maxChains) {
    pieces.push({ filter: nothing, nat: { ...nothing, puts: early.slice(at, at + maxChains) } });
  }
  const late = puts.filter(({ chain }) => !isEarly(chain));
  return [...pieces, { ...change, nat: { ...change.nat, puts: late } }];
}

/**
 * Returns a change as input of `iptables-restore --noflush`: one transaction for each table that changes, or "" if none
 * does.
 *
 * A line `:CHAIN - [0:0]` creates a chain, or removes all rules of an existing one. Chains that are not named keep
 * their rules. The order of the lines:
 *
 * 1. the lines that create or empty chains, for all chains, so that a rule may jump to any of them,
 * 2. rules,
 * 3. jumps from built-in chains, at which point the chains that they lead to are complete,
 * 4. `-X CHAIN` for deleted chains, to which nothing jumps any more.
 */
export function transactionText(change: RulesetChange): string {
  return tables
    .map((table) => (isEmptyTable(change[table]) ? "" : `*${table}\n${tableLines(change[table])}COMMIT\n`))
    .join("");
}

function tableLines({ puts, deletes, jumps }: TableChange): string {
  const declare = (chain: string): string => `:${chain} - [0:0]\n`;
  return [
    ...puts.map(({ chain }) => declare(chain)),
    ...deletes.map(declare),
    ...puts.map(({ body }) => body),
    ...jumps.map((line) => `${line}\n`),
    ...deletes.map((chain) => `-X ${chain}\n`),
  ].join("");
}

/** Counts the rules of chains, for metrics and inspection. */
export function countRules(bodies: Iterable<string>): number {
  let count = 0;
  for (const body of bodies) {
    for (let at = body.indexOf("\n"); at >= 0; at = body.indexOf("\n", at + 1)) count++;
  }
  return count;
}

const explained = {
  missing: "the chain is missing",
  unwanted: "the chain is not desired",
  changed: "rules differ",
  order: "the rules are in another order",
  jumps: "jumps to our chains differ",
} as const;

/**
 * Lists the rules that a change would add to the installed chains or remove from them, for `--diff` and inspection, each
 * without `-A CHAIN `.
 *
 * Two rules with the same canonical text count as the same rule. Pure; O(rules of the chains that change).
 */
export function listDifferences(
  change: RulesetChange,
  installed: ReadonlyMap<ChainId, ChainBody>,
): readonly RuleDifference[] {
  return tables.flatMap((table) => {
    const { puts, deletes, jumps } = change[table];
    const compare = (chain: string, kind: "changed" | "jumps", had: readonly string[], desired: readonly string[]) => {
      const missing = without(desired, had);
      const unwanted = without(had, desired);
      return describe(chain, missing.length + unwanted.length === 0 ? "order" : kind, missing, unwanted);
    };
    const describe = (
      chain: string,
      kind: keyof typeof explained,
      missing: readonly string[],
      unwanted: readonly string[],
    ): RuleDifference => ({
      summary: `${table} ${chain}: ${explained[kind]}`,
      missing,
      unwanted,
      fields: { table, chain, kind },
    });
    const jumpsOf = (start: string) =>
      jumps.filter((line) => line.startsWith(start)).map((line) => line.slice(start.length));
    return [
      ...puts.map(({ chain, body }) => {
        const had = installed.get(chainId(table, chain));
        if (had === undefined) return describe(chain, "missing", rulesOf(chain, body), []);
        return compare(chain, "changed", rulesOf(chain, had), rulesOf(chain, body));
      }),
      ...deletes.map((chain) =>
        describe(chain, "unwanted", [], rulesOf(chain, installed.get(chainId(table, chain)) ?? "")),
      ),
      // The lines of `diffJumps` insert the last jump first.
      ...[...new Set(jumps.map((line) => line.split(" ")[1] ?? ""))].map((chain) =>
        compare(chain, "jumps", jumpsOf(`-D ${chain} `), jumpsOf(`-I ${chain} 1 `).toReversed()),
      ),
    ];
  });
}

/**
 * Returns the rules of `a` that `b` lacks. If `a` contains a rule twice and `b` contains it once, it is returned once.
 */
function without(a: readonly string[], b: readonly string[]): readonly string[] {
  const counts = new Map<string, number>();
  for (const rule of b) counts.set(canonicalRule(rule), (counts.get(canonicalRule(rule)) ?? 0) + 1);
  return a.filter((rule) => {
    const left = counts.get(canonicalRule(rule)) ?? 0;
    counts.set(canonicalRule(rule), left - 1);
    return left <= 0;
  });
}
