import type { RuleChange, RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import { transactionStart } from "@kpng/backend-kit/proxy/transaction-start.ts";
import { type Batch, formatBatches } from "../diff/batches.ts";
import type { ObjectChange } from "../diff/diff-objects.ts";

/** A change of the objects and rules of one family; the result of each sync and repair. */
export interface IpvsChange extends RuleChange {
  /** Numbers of objects. */
  readonly puts: number;
  readonly deletes: number;
}

interface CallChanges {
  readonly objects: readonly ObjectChange[];
  readonly batches: readonly Batch[];
  /** Interface, ipsets and rules that were missing or different. *Shape:* `rules`, `ipset KPNGIPVS-MASQ`. */
  readonly parts: readonly string[];
}

/**
 * Describes the changes of one sync or repair for log, metrics and inspection. `IpvsRuleSet` returns it from both.
 * Separate from `IpvsRuleSet`, because it is pure: it only describes changes that are already made.
 */
export function makeIpvsChange(mode: "partial" | "full", { objects, batches, parts }: CallChanges): IpvsChange {
  const deletes = objects.filter(({ after }) => after === undefined).length;
  const puts = objects.length - deletes;
  return {
    mode: objects.length + parts.length === 0 ? "none" : mode,
    fields: { puts, deletes, parts: parts.length, example: parts[0] ?? objects[0]?.key },
    puts,
    deletes,
    transaction: transactionStart(formatBatches(batches)),
    differences: () => [
      ...parts.map((part) => ({ summary: `${part}: differs`, missing: [], unwanted: [], fields: { part } })),
      ...listDifferences(objects),
    ],
  };
}

function listDifferences(objects: readonly ObjectChange[]): readonly RuleDifference[] {
  return [...Map.groupBy(objects, ({ kind }) => kind)].map(([kind, changes]) => ({
    summary: `${kind}: ${changes.length} objects differ`,
    missing: changes.flatMap(({ key, after }) => (after === undefined ? [] : [`${key} ${after}`.trimEnd()])),
    unwanted: changes.flatMap(({ key, before }) => (before === undefined ? [] : [`${key} ${before}`.trimEnd()])),
    fields: { kind },
  }));
}
