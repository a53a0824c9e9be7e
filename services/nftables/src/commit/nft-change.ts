import type { RuleChange, RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import { maxTransactionLength } from "@kpng/backend-kit/proxy/transaction-start.ts";
import type { Family } from "@kpng/model/address.ts";
import { formatElement } from "../layout/format-element.ts";
import { dataOf, type SharedSet } from "../layout/set-names.ts";
import type { SetElement } from "../netlink/element-batch.ts";
import { ipOf } from "../render/skeleton.ts";
import type { TableChange } from "./nft-table.ts";

/** A change of the table of one family; the result of each sync and repair. */
export interface NftChange extends RuleChange {
  /** Elements that were put and deleted. */
  readonly puts: number;
  readonly deletes: number;
}

/**
 * Describes a change for log, metrics and inspection. `NftRuleSet` and `PrintedRuleSet` call it after each sync and
 * repair. Separate from `NftTable`, which makes the change and formats no text.
 */
export function makeNftChange(family: Family, mode: "partial" | "full", change: TableChange, table: string): NftChange {
  const { elements, chains } = change;
  const count = (kind: "put" | "delete"): number =>
    elements.reduce((sum, step) => sum + (step.kind === kind ? step.elements.length : 0), 0);
  const [puts, deletes] = [count("put"), count("delete")];
  return {
    mode: puts + deletes + chains.length === 0 ? "none" : mode,
    fields: { puts, deletes, chains: chains.length, example: elements[0]?.set ?? chains[0] },
    puts,
    deletes,
    transaction: formatTransaction(family, change, maxTransactionLength, table),
    differences: () => listDifferences(family, change),
  };
}

/** Formats changed elements as commands of nft. *Shape of a line:* `add element ip kpng frontends { … }`. */
export function formatTransaction(
  family: Family,
  { elements }: Pick<TableChange, "elements">,
  maxLength: number,
  table: string,
): string {
  const lines: string[] = [];
  let length = 0;
  for (const { kind, set, elements: changed } of elements) {
    for (const one of changed) {
      if (length > maxLength) return `${lines.join("\n")}\n`;
      const line = `${kind === "put" ? "add" : "delete"} element ${ipOf(family)} ${table} ${formatOne(family, set, one)}`;
      lines.push(line);
      length += line.length + 1;
    }
  }
  return lines.length === 0 ? "" : `${lines.join("\n")}\n`;
}

function formatOne(family: Family, set: SharedSet, { key, data, comment }: SetElement): string {
  const stored = dataOf[set] === "comment" ? comment : undefined;
  const value = data === undefined ? stored : data.kind === "value" ? data.bytes : data.chain;
  return formatElement(family, set, key, value);
}

/** One difference for each set and chain. */
function listDifferences(family: Family, { elements, chains }: TableChange): readonly RuleDifference[] {
  const bySet = Map.groupBy(elements, ({ set }) => set);
  const ofKind = (changes: TableChange["elements"], kind: "put" | "delete"): readonly string[] =>
    changes.flatMap((change) =>
      change.kind === kind ? change.elements.map((one) => formatOne(family, change.set, one)) : [],
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
