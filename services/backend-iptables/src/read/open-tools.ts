import { families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { detectVariant } from "./detect-variant.ts";
import { findTools, type Tools, type Variant } from "./find-tools.ts";
import type { RunTool } from "./run-tool.ts";

/**
 * Returns the tools of each family that this node can have rules of. `openRuleSets` calls it once, at the start.
 * Without ip6tables, the node serves IPv4 only. Without iptables it cannot serve at all.
 *
 * Separate from `detectVariant` and `findTools`, which look at the node: this function decides, and logs the decision.
 *
 * Errors: IPTABLES_MISSING, IPTABLES_TOO_OLD for IPv4.
 */
export async function openTools(variant: Variant | "auto", run: RunTool, log: Log): Promise<readonly Tools[]> {
  const opened: Tools[] = [];
  const { variant: chosen, reason } =
    variant === "auto" ? await detectVariant(run) : { variant, reason: "--iptables-variant" };
  for (const family of families) {
    const tools = await findTools(family, chosen, run).catch((error: unknown) => {
      if (family === "v4") throw error;
      return { missing: reasonOf(error) };
    });
    if ("missing" in tools) log.info("not serving this family", { family, reason: tools.missing });
    else {
      log.info("iptables found", { family, version: tools.version, variant: tools.variant, reason });
      opened.push(tools);
    }
  }
  return opened;
}
