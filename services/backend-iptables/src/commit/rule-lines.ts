import type { RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { countRules } from "../diff/transaction-text.ts";
import { type ChainBody, type ChainId, splitChainId } from "../render/table.ts";

/**
 * Lists the rules of chains, sorted by chain. *Shape of a line:* `nat -A KPNG-SERVICES …`.
 *
 * `IptablesRuleSet` calls it for its two lists, the desired and the installed rules. The inspection of backend-kit
 * shows them, e.g. for `kpng get rules`. Separate from the rule set, because only people read these lines; no sync uses
 * them. `bodies` is a function, because each request shows the current chains.
 */
export function listRules(bodies: () => ReadonlyMap<ChainId, ChainBody>): RuleList {
  const lines = (): readonly string[] => {
    const sorted = [...bodies()].sort(([a], [b]) => compareText(a, b));
    return sorted.flatMap(([id, body]) => {
      const { table } = splitChainId(id);
      return body.split("\n").flatMap((line) => (line === "" ? [] : [`${table} ${line}`]));
    });
  };
  return {
    count: () => countRules(bodies().values()),
    lines,
    linesOf: (service) => selectService(lines(), service),
  };
}

const ownChain = /-(?:SVC|SVL|EXT|FW)-[A-Z2-7]{16}/;

/** Returns the lines that name a Service, and all lines of the chains of its ports to which these lines jump. */
function selectService(lines: readonly string[], service: ServiceKey): readonly string[] {
  const comment = new RegExp(`--comment "?${RegExp.escape(service)}[:" ]`);
  const linesByChain = Map.groupBy(lines, (line) => line.split(" ", 3)[2] ?? "");
  const chosen = new Set(lines.filter((line) => comment.test(line)));
  // Lines that are added here are visited, too.
  for (const line of chosen) {
    const target = / -[jg] (\S+)/.exec(line)?.[1];
    if (target !== undefined && ownChain.test(target))
      for (const one of linesByChain.get(target) ?? []) chosen.add(one);
  }
  return lines.filter((line) => chosen.has(line));
}
