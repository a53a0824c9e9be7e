import type { RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { countRules } from "../diff/transaction-text.ts";
import { type ChainBody, type ChainId, splitChainId } from "../render/table.ts";

/**
 * Lists the rules of chains, sorted by chain. *Shape of a line:* `nat -A KPNG-SERVICES …`.
 *
 * `IptablesRuleSet` implements its two lists with it, the desired and the installed rules. The inspection of
 * backend-kit shows them, e.g. for `kpng get rules`. `bodies` is a function, because each request shows the current
 * chains.
 */
export function listRules(bodies: () => ReadonlyMap<ChainId, ChainBody>): RuleList {
  return {
    count: () => countRules(bodies().values()),
    lines: () => {
      const sorted = [...bodies()].sort(([a], [b]) => compareText(a, b));
      return sorted.flatMap(([id, body]) => {
        const { table } = splitChainId(id);
        return body.split("\n").flatMap((line) => (line === "" ? [] : [`${table} ${line}`]));
      });
    },
  };
}
