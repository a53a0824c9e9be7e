import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { BackendError } from "@kpng/backend-kit/types/backend-error.ts";
import { families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { cleanupTransaction } from "./commit/cleanup.ts";
import { deleteCounters } from "./commit/packet-counters.ts";
import { restoreRules } from "./commit/restore-rules.ts";
import { resetBeforeCleanup } from "./commit/route-localnet.ts";
import { findTools, type Tools } from "./read/find-tools.ts";
import { readRules } from "./read/read-rules.ts";
import { type RunTool, runTool } from "./read/run-tool.ts";

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
 * a node may have changed from one to the other since. Then the counters that rules have used. If kpng set the sysctl
 * route_localnet, it is reset first.
 *
 * Errors: SYSCTL_FAILED if the sysctl cannot be reset, and then the rules that guard 127.0.0.1 stay; those of the restore; a kind of tools that is not installed is passed over.
 */
export async function cleanUp(options: CleanupOptions): Promise<void> {
  const { prefix, lockSeconds, timeoutMs, log, run = runTool, print } = options;
  const saved = new Map<Tools, string>();
  for (const family of families) {
    for (const variant of ["auto", "nft", "legacy"] as const) {
      const tools = await findTools(family, variant, run).catch((error: unknown) => ({ missing: reasonOf(error) }));
      if ("missing" in tools) {
        log.debug("no rules of this kind", { family, variant, reason: tools.missing });
        continue;
      }
      if ([...saved.keys()].some((other) => other.family === family && other.variant === tools.variant)) continue;
      saved.set(tools, await readRules(tools, run, timeoutMs));
    }
  }
  const savedV4 = [...saved].flatMap(([{ family }, text]) => (family === "v4" ? [text] : [])).join("\n");
  // Before the guard goes, or what listens on 127.0.0.1 would be open to the node's neighbours.
  const keepsGuard = print === undefined && !(await resetBeforeCleanup(savedV4, prefix, new Sysctls(), log));
  for (const [tools, text] of saved) {
    const transaction = cleanupTransaction(text, prefix, keepsGuard);
    if (transaction === "") continue;
    if (print !== undefined) print(`# ${tools.restore} --noflush\n${transaction}`);
    else {
      const { family, variant } = tools;
      await restoreRules(transaction, { tools, run, lockSeconds, timeoutMs });
      log.info("rules removed", { family, variant, lines: transaction.split("\n").length - 1 });
    }
  }
  if (print === undefined) await deleteCounters(prefix, run);
  if (keepsGuard) {
    const text = `route_localnet cannot be reset to 0: ${prefix}LOCALNET stays, because it keeps neighbours from 127.0.0.1`;
    throw new BackendError("SYSCTL_FAILED", text);
  }
}
