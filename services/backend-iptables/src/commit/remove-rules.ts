import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { BackendError } from "@kpng/backend-kit/types/backend-error.ts";
import { families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { findTools, type Tools } from "../read/find-tools.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import { readRules } from "../read/read-rules.ts";
import { runTool } from "../read/run-tool.ts";
import { cleanupTransaction } from "./cleanup-transaction.ts";
import { deleteCounters } from "./packet-counters.ts";
import { type RestoreLimits, restoreRules } from "./restore-rules.ts";
import { resetBeforeCleanup } from "./route-localnet.ts";

/** Options of `removeRules`. */
export interface RemoveOptions extends RestoreLimits {
  readonly prefix: string;
  readonly sysctls: Sysctls;
  readonly log: Log;
}

/**
 * Removes everything that kpng-iptables installed on the node, for `--cleanup`: all chains with our prefix and all
 * jumps to them, of both families, from iptables-nft and iptables-legacy, because a node may have changed from one to
 * the other. Then it deletes the packet counters of the rules. If kpng set the sysctl route_localnet, it resets the
 * sysctl first. Variants that are not installed are skipped.
 *
 * `proxyBackend` of backend-kit calls it through `cleanUp` of `iptablesBackend`. It does not use `IptablesRuleSet`,
 * which knows one variant of iptables and needs the Services of a view; a cleanup has neither.
 *
 * Errors: those of `restoreRules`; TABLE_INCOMPATIBLE and CHAINS_IN_USE after everything else is removed; and
 * SYSCTL_FAILED if the sysctl cannot be reset. In that case all rules are removed except those that guard 127.0.0.1.
 */
export async function removeRules(options: RemoveOptions): Promise<void> {
  const { prefix, sysctls, log } = options;
  const { saved, failures } = await readAll(options);
  const savedV4 = [...saved].flatMap(([{ family }, text]) => (family === "v4" ? [text] : [])).join("\n");
  // First: without the guard, the sysctl would open services on 127.0.0.1 to the node's neighbours.
  const keepsGuard = !(await resetBeforeCleanup(savedV4, prefix, sysctls, log));
  for (const [tools, text] of saved) {
    const { transaction, kept } = cleanupTransaction(text, prefix, keepsGuard);
    if (kept.length > 0) failures.push(chainsInUse(kept, tools));
    if (transaction === "") continue;
    const { family, variant } = tools;
    await restoreRules(transaction, { ...options, tools, run: runTool });
    log.info("rules removed", { family, variant, lines: transaction.split("\n").length - 1 });
  }
  await deleteCounters(prefix, runTool);
  for (const failure of failures) log.error("some rules are not removed", { reason: reasonOf(failure) });
  if (failures[0] !== undefined) throw failures[0];
  if (keepsGuard) {
    const text = `route_localnet cannot be reset to 0; keeping chain ${prefix}LOCALNET, which guards 127.0.0.1 against other hosts`;
    throw new BackendError("SYSCTL_FAILED", text);
  }
}

/** Returns the error for chains that stay, empty, because rules of other programs jump to them. */
function chainsInUse(kept: readonly string[], { save }: Tools): BackendIptablesError {
  const text = `${save}: rules of other programs jump to our chains, which are now empty and stay: ${kept.join(", ")}. Delete these rules, then run --cleanup again`;
  return new BackendIptablesError("CHAINS_IN_USE", text);
}

/** Installed rules of all families and variants. */
interface AllRules {
  /** Output of iptables-save for each family and variant that is installed. */
  readonly saved: ReadonlyMap<Tools, string>;
  /** Rules that cannot be read, and so not removed. */
  readonly failures: BackendIptablesError[];
}

/** Reads the rules of each family and each installed variant of iptables. */
async function readAll({ timeoutMs, log }: RemoveOptions): Promise<AllRules> {
  const saved = new Map<Tools, string>();
  const failures: BackendIptablesError[] = [];
  for (const family of families) {
    for (const variant of ["auto", "nft", "legacy"] as const) {
      const tools = await findTools(family, variant, runTool).catch((error: unknown) => ({ missing: reasonOf(error) }));
      if ("missing" in tools) {
        log.debug("no iptables of this variant", { family, variant, reason: tools.missing });
        continue;
      }
      if ([...saved.keys()].some((other) => other.family === family && other.variant === tools.variant)) continue;
      try {
        saved.set(tools, await readRules(tools, runTool, timeoutMs));
      } catch (error) {
        if (!(error instanceof BackendIptablesError && error.code === "TABLE_INCOMPATIBLE")) throw error;
        failures.push(error);
      }
    }
  }
  return { saved, failures };
}
