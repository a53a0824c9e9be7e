import type { RuleChange, RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import { transactionStart } from "@kpng/backend-kit/proxy/transaction-start.ts";
import type { SyncMode } from "@kpng/backend-kit/types/sync-update.ts";
import type { RulesetChange } from "../diff/diff-chains.ts";
import { listDifferences } from "../diff/list-differences.ts";
import { type ChainBody, type ChainId, chainId, tables } from "../render/table.ts";

/** A change of the iptables rules of one family; the result of a sync or repair. */
export interface IptablesChange extends RuleChange {
  /** The committed change, for metrics. */
  readonly ruleset: RulesetChange;
}

/**
 * Describes a change for log, metrics and inspection. `IptablesRuleSet` returns it from each sync and repair.
 *
 * Separate from `IptablesRuleSet`, which decides about rules: this file only describes a change that is already made.
 *
 * `committed` are the chains before the change. The caller modifies them after this call, so this function copies the
 * chains that `differences` needs.
 */
export function makeIptablesChange(
  mode: SyncMode | "none",
  ruleset: RulesetChange,
  transaction: string,
  committed: ReadonlyMap<ChainId, ChainBody>,
): IptablesChange {
  const before = new Map<ChainId, ChainBody>();
  for (const table of tables) {
    const { puts, deletes } = ruleset[table];
    for (const chain of [...puts.map((put) => put.chain), ...deletes]) {
      const id = chainId(table, chain);
      const body = committed.get(id);
      if (body !== undefined) before.set(id, body);
    }
  }
  return {
    mode,
    ruleset,
    transaction: transactionStart(transaction),
    fields: describeSize(ruleset),
    differences: () => listDifferences(ruleset, before).map(toRuleDifference),
  };
}

function describeSize({ filter, nat }: RulesetChange): RuleChange["fields"] {
  const puts = [...filter.puts, ...nat.puts];
  return {
    chains: puts.length,
    deleted: filter.deletes.length + nat.deletes.length,
    jumps: filter.jumps.length + nat.jumps.length,
    example: puts[0]?.chain,
  };
}

type ChainDifference = ReturnType<typeof listDifferences>[number];

function toRuleDifference({ table, chain, kind, missing, unwanted }: ChainDifference): RuleDifference {
  return { summary: `${table} ${chain}: ${explained[kind]}`, missing, unwanted, fields: { table, chain, kind } };
}

const explained: Readonly<Record<ChainDifference["kind"], string>> = {
  missing: "the chain is missing",
  unwanted: "the chain is not wanted",
  changed: "rules differ",
  order: "the rules are in another order",
  jumps: "jumps to our chains differ",
};
