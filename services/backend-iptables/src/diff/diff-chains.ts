import { canonicalRule, isSameRule } from "../read/canonical-rule.ts";
import { type ChainBody, type ChainId, chainId, splitChainId, type Table, tables } from "../render/rule.ts";

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

/** Whether a change to one table has no effect. */
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
    if (have.length === want.length && have.every((rule, at) => isSameRule(rule, want[at] ?? ""))) continue;
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

/** A difference between an installed chain and the desired chain, for `--diff` and inspection. */
export interface ChainDifference {
  readonly table: Table;
  readonly chain: string;
  /** "jumps": jumps from a built-in chain to our chains. "order": the same rules in a different order. */
  readonly kind: "missing" | "unwanted" | "changed" | "order" | "jumps";
  /** Desired rules that are not installed, each without `-A CHAIN `. */
  readonly missing: readonly string[];
  /** Installed rules that are not desired, each without `-A CHAIN `. */
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
  desired: ChainBody,
): ChainDifference {
  const [installedRules, desiredRules] = [rulesOf(chain, installed ?? ""), rulesOf(chain, desired)];
  const missing = without(desiredRules, installedRules);
  const unwanted = without(installedRules, desiredRules);
  if (installed === undefined) return { table, chain, kind: "missing", missing, unwanted };
  const kind = missing.length + unwanted.length === 0 ? "order" : "changed";
  return { table, chain, kind, missing, unwanted };
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

/**
 * Lists the differences between the desired and the installed jumps. `lines` are the lines from `diffJumps` that would
 * remove these differences.
 */
function jumpDifferences(table: Table, lines: readonly string[]): readonly ChainDifference[] {
  const chains = new Set(lines.map((line) => line.split(" ")[1] ?? ""));
  return [...chains].map((chain) => {
    const rules = (start: string) =>
      lines.filter((line) => line.startsWith(start)).map((line) => line.slice(start.length));
    // The lines insert the last jump first.
    const desired = rules(`-I ${chain} 1 `).toReversed();
    const had = rules(`-D ${chain} `);
    const missing = desired.filter((rule) => !had.includes(rule));
    const unwanted = had.filter((rule) => !desired.includes(rule));
    return { table, chain, kind: missing.length + unwanted.length === 0 ? "order" : "jumps", missing, unwanted };
  });
}
