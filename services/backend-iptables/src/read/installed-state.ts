import type { InstalledState } from "@kpng/backend-kit/proxy/rule-record.ts";
import type { ChainNames } from "../render/chain-names.ts";
import { readRecord, recordChain } from "../render/record-rule.ts";
import { chainId } from "../render/table.ts";
import type { InstalledRules } from "./installed-rules.ts";

/**
 * Returns what an earlier run has left, from the chains and jumps that are installed. Rules with a record count even if
 * jumps to them are missing, because these can be restored. Pure.
 */
export function findInstalledState({ chains, jumps }: InstalledRules, names: ChainNames): InstalledState {
  const services = chains.has(chainId("nat", names.fixed("SERVICES")));
  const record = readRecord(chains.get(recordChain(names)) ?? "");
  if (services && record !== undefined) return { kind: "marked", record };
  return services && jumps.has(chainId("nat", "PREROUTING")) ? { kind: "unmarked" } : { kind: "absent" };
}
