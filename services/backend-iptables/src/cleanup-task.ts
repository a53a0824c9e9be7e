import { families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { cleanupTransaction } from "./commit/cleanup.ts";
import { deleteCounters } from "./commit/packet-counters.ts";
import { restoreRules } from "./commit/restore-rules.ts";
import { type RunTool, runTool } from "./commit/run-tool.ts";
import { findTools } from "./read/find-tools.ts";
import { readRules } from "./read/read-rules.ts";

export interface CleanupOptions {
  readonly prefix: string;
  readonly lockSeconds: number;
  readonly timeoutMs: number;
  readonly log: Log;
  /** Default {@link runTool}. */
  readonly run?: RunTool | undefined;
  /** Takes the transactions instead of the kernel. */
  readonly print?: ((text: string) => void) | undefined;
}

/**
 * Removes all chains with our prefix and all jumps to them, of both families, from iptables-nft and from iptables-legacy:
 * a node may have changed from one to the other since. Then the counters that rules have used.
 *
 * Errors: those of the restore; a kind of tools that is not installed is passed over.
 */
export async function cleanUp(options: CleanupOptions): Promise<void> {
  const { prefix, lockSeconds, timeoutMs, log, run = runTool, print } = options;
  const done = new Set<string>();
  for (const family of families) {
    for (const variant of ["auto", "nft", "legacy"] as const) {
      const tools = await findTools(family, variant, run).catch((error: unknown) => ({ missing: reasonOf(error) }));
      if ("missing" in tools) {
        log.debug("no rules of this kind", { family, variant, reason: tools.missing });
        continue;
      }
      if (done.has(`${family} ${tools.variant}`)) continue;
      done.add(`${family} ${tools.variant}`);
      const transaction = cleanupTransaction(await readRules(tools, run, timeoutMs), prefix);
      if (transaction === "") continue;
      if (print !== undefined) print(`# ${tools.restore} --noflush\n${transaction}`);
      else {
        await restoreRules(transaction, { tools, run, lockSeconds, timeoutMs });
        log.info("rules removed", { family, variant: tools.variant, lines: transaction.split("\n").length - 1 });
      }
    }
  }
  if (print === undefined) await deleteCounters(prefix, run);
}
