import type { InstalledState } from "@kpng/backend-kit/proxy/rule-record.ts";
import type { ChainNames } from "../render/chain-names.ts";
import { readRecord, recordChain } from "../render/record-rule.ts";
import { chainId } from "../render/table.ts";
import type { InstalledRules } from "./installed-rules.ts";

/**
 * Decides from the installed chains and jumps whether an earlier run left rules: "marked" with the record of these
 * rules, "unmarked" without one, or "absent". Rules with a record count even if jumps to them are missing, because
 * jumps can be restored. Rules without a record count as absent if the chain SERVICES is empty: another program has
 * flushed all chains, or the rules serve nothing. Pure.
 *
 * `IptablesRuleSet` calls it at the start for `FamilyRules` of backend-kit, which then decides whether the rules stay
 * until the first complete view. Separate from `InstalledRulesReader`, which finds the chains and jumps and draws no
 * conclusions from them.
 */
export function findInstalledState(
  { chains, jumps }: Pick<InstalledRules, "chains" | "jumps">,
  names: ChainNames,
): InstalledState {
  const services = chains.get(chainId("nat", names.fixed("SERVICES")));
  const record = readRecord(chains.get(recordChain(names)) ?? "");
  if (services !== undefined && record !== undefined) return { kind: "marked", record };
  const isReached = services !== undefined && services !== "" && jumps.has(chainId("nat", "PREROUTING"));
  return { kind: isReached ? "unmarked" : "absent" };
}
