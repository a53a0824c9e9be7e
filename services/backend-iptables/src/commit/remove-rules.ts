import { saysUnsupported } from "@kpng/backend-kit/exec/iptables-messages.ts";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { diffChains, diffJumps, transactionText } from "../diff/diff-chains.ts";
import { findInstalledRules, readRules } from "../read/installed-rules.ts";
import { findTools, runTool, type Tools, type Variant } from "../read/tools.ts";
import { resetBeforeCleanup, restoreRules } from "./open-rule-sets.ts";

/**
 * Returns the transaction that removes all chains with our prefix and all jumps to them, for `--cleanup`; "" if there
 * are none. Other rules stay as they are.
 *
 * `saved` is the output of iptables-save. Pure.
 */
export function cleanupTransaction(saved: string, prefix: string): string {
  const { chains, jumps } = findInstalledRules(saved, prefix);
  return transactionText(diffChains(chains, new Map(), chains.keys(), diffJumps(jumps, new Map())));
}

interface RemoveOptions {
  readonly prefix: string;
  readonly sysctls: Sysctls;
  readonly log: Log;
}

/**
 * Removes everything that kpng-iptables installed on the node, for `--cleanup`: all chains with our prefix and all
 * jumps to them, for both families. It does so in both iptables-nft and iptables-legacy, because a node may have
 * changed from one to the other. It resets the sysctl route_localnet first. Variants that are not installed or not
 * supported by the kernel are skipped.
 *
 * Errors: it continues after a failure, logs each one, and throws the first: an error from a tool; IPTABLES_MISSING if
 * there is no iptables for IPv4; SYSCTL_FAILED if the sysctl cannot be reset, in which case the IPv4 rules stay.
 */
export async function removeRules(options: RemoveOptions): Promise<void> {
  const { prefix, sysctls, log } = options;
  const failures = new CleanupFailures(log);
  const saved = await readAll(options, failures);
  const savedV4 = [...saved].flatMap(([{ family }, text]) => (family === "v4" ? [text] : [])).join("\n");
  // Done first, because without the guard the sysctl would open services on 127.0.0.1 to the node's neighbours.
  const reset = async () => {
    await resetBeforeCleanup(savedV4, prefix, sysctls, log);
    return true;
  };
  const isReset = (await failures.attempt(reset)) === true;
  for (const [tools, text] of saved) {
    const { family, variant } = tools;
    const transaction = cleanupTransaction(text, prefix);
    if (transaction === "" || (family === "v4" && !isReset)) continue;
    await failures.attempt(async () => {
      await restoreRules(transaction, { tools, run: runTool });
      log.info("rules removed", { family, variant, lines: transaction.split("\n").length - 1 });
    });
  }
  failures.end();
}

/**
 * Reads the rules of each family and each installed variant of iptables. Returns the output of iptables-save; if rules
 * cannot be read, this is recorded as a failure, and they are not removed.
 */
async function readAll({ log }: RemoveOptions, failures: CleanupFailures): Promise<ReadonlyMap<Tools, string>> {
  const saved = new Map<Tools, string>();
  for (const family of nodeFamilies()) {
    const found = new Set<Variant>();
    let noTool: unknown;
    for (const variant of ["auto", "nft", "legacy"] as const) {
      const skip = (error: unknown): void =>
        log.debug("no rules of this variant of iptables", { family, variant, reason: reasonOf(error) });
      const tools = await findTools(family, variant, runTool).catch((error: unknown) => {
        noTool ??= error;
        skip(error);
      });
      if (tools === undefined || found.has(tools.variant)) continue;
      found.add(tools.variant);
      const reading = readRules(tools, runTool).catch((error: unknown) => {
        if (variant === "auto" || !saysUnsupported(reasonOf(error))) throw error;
        skip(error);
      });
      const text = await failures.attempt(() => reading);
      if (text !== undefined) saved.set(tools, text);
    }
    if (family === "v4" && found.size === 0) failures.add(noTool);
  }
  return saved;
}
