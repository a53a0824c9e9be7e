import type { Tools } from "../read/find-tools.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import type { RunTool } from "../read/run-tool.ts";

/** Commits a transaction. Errors: those of {@link restoreRules}. */
export type RestoreRules = (transaction: string) => Promise<void>;

/** Limits of one iptables-restore. */
export interface RestoreLimits {
  /** How long to wait for the xtables lock while another program holds it, in seconds. iptables-nft has no lock. */
  readonly lockSeconds: number;
  /** Time limit of one call of iptables-save or iptables-restore, in milliseconds. */
  readonly timeoutMs: number;
}

interface RestoreOptions extends RestoreLimits {
  readonly tools: Tools;
  readonly run: RunTool;
}

/** Exit status of iptables-legacy if it did not get the lock. Source: iptables `xtables.h`, RESOURCE_PROBLEM. */
const lockExitCode = 4;

/**
 * Commits a transaction with `iptables-restore --noflush`. `IptablesRuleSet` calls it through `openRuleSets` in each
 * sync and repair, and `removeRules` calls it for `--cleanup`.
 *
 * Separate from `scanRules`, which reads the rules, because only the folder `commit` writes to the kernel.
 *
 * Errors: RESTORE_REFUSED with the rejected line; its table is unchanged, but tables before it are committed. LOCK_HELD
 * if another program kept the lock; nothing is changed. And those of `run`.
 */
export async function restoreRules(transaction: string, options: RestoreOptions): Promise<void> {
  const { tools, run, lockSeconds, timeoutMs } = options;
  const command = [tools.restore, "--noflush", "-w", String(lockSeconds)];
  const { exitCode, stderr } = await run(command, { input: transaction, timeoutMs });
  if (exitCode === 0) return;
  const output = stderr.trim();
  if (exitCode === lockExitCode && /xtables lock/.test(output)) {
    const text = `${tools.restore} did not get the xtables lock within ${lockSeconds} s: ${output}`;
    throw new BackendIptablesError("LOCK_HELD", text);
  }
  const lines = transaction.split("\n").length - 1;
  const rejected = describeLine(transaction, output);
  const text = `${tools.restore} rejected a transaction of ${lines} lines (exit status ${exitCode})${rejected}: ${output}`;
  throw new BackendIptablesError("RESTORE_REFUSED", text);
}

/**
 * Returns a description of the line that the tool reports; "" if it reports none.
 *
 * iptables-legacy sends a table to the kernel at COMMIT. If the kernel rejects the table, the tool reports that line.
 */
function describeLine(transaction: string, output: string): string {
  const number = Number(/(?:line:? )(\d+)/.exec(output)?.[1] ?? Number.NaN);
  const line = transaction.split("\n")[number - 1];
  return line === undefined ? "" : ` at line ${number} "${line.slice(0, 400)}"`;
}
