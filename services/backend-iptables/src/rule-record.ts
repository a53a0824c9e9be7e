import type { RuleSetState } from "@kpng/backend-kit/inspect/rule-set-state.ts";
import type { Family } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { ChainBody } from "./diff/desired-chains.ts";
import type { RulesetChange } from "./diff/diff-chains.ts";
import { countRules } from "./diff/transaction-text.ts";
import type { FamilyRules, Kernel } from "./family-rules.ts";
import { type ChainId, splitChainId, tables } from "./render/table.ts";

/** Most of a transaction that is remembered, in characters. */
const maxTransaction = 64 * 1024;

/** What passed between the rules of a family and the kernel, as far as somebody may ask for it. */
export class RuleRecord {
  #readAtMs: number | undefined;
  #committedAtMs: number | undefined;
  #lastTransaction = "";
  #drift: readonly string[] = [];
  #repairCount = 0;

  /** The same kernel, with a look at what goes through its doors. */
  watch(kernel: Kernel): Kernel {
    return {
      ...kernel,
      read: async (take) => {
        await kernel.read(take);
        this.#readAtMs = Date.now();
      },
      restore: async (transaction) => {
        await kernel.restore(transaction);
        this.#committedAtMs = Date.now();
        // A copy: a part of a text keeps the whole of it, which of a full sync is many megabytes.
        this.#lastTransaction = Buffer.from(transaction.slice(0, maxTransaction)).toString();
      },
    };
  }

  /** Takes what a look for others' changes has undone; nothing if there was none. */
  looked(change: RulesetChange | undefined): void {
    this.#drift = change === undefined ? [] : describeDrift(change);
    if (change !== undefined) this.#repairCount++;
  }

  state(family: Family, rules: FamilyRules): RuleSetState {
    return {
      name: family,
      desiredCount: () => countRules(rules.bodies.values()),
      actualCount: () => countRules(rules.committed.values()),
      desired: () => linesOf(rules.bodies),
      actual: () => linesOf(rules.committed),
      readAtMs: this.#readAtMs,
      lastTransaction: this.#lastTransaction,
      committedAtMs: this.#committedAtMs,
      drift: this.#drift,
      repairCount: this.#repairCount,
    };
  }
}

/** *Shape:* `nat -A KPNG-SERVICES …`, chain by chain in the order of their names. */
function linesOf(bodies: ReadonlyMap<ChainId, ChainBody>): readonly string[] {
  const sorted = [...bodies].sort(([a], [b]) => compareText(a, b));
  return sorted.flatMap(([id, body]) => {
    const { table } = splitChainId(id);
    return body.split("\n").flatMap((line) => (line === "" ? [] : [`${table} ${line}`]));
  });
}

function describeDrift(change: RulesetChange): readonly string[] {
  return tables.flatMap((table) => {
    const { puts, deletes, jumps } = change[table];
    return [
      ...puts.map(({ chain }) => `${table} ${chain}: its rules were others, or it was gone`),
      ...deletes.map((chain) => `${table} ${chain}: nobody wants it`),
      ...jumps
        .filter((line) => line.startsWith("-I "))
        .map((line) => `${table} ${line.split(" ")[1]}: our jumps were others`),
    ];
  });
}
