import type { Tools } from "../read/find-tools.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import type { RunTool } from "../read/run-tool.ts";

/** Hands a transaction to the kernel. */
export type RestoreRules = (transaction: string) => Promise<void>;

/** Limits of one iptables-restore. */
export interface RestoreLimits {
  /** How long another program's xtables lock is waited for, in seconds; iptables-nft has no lock. */
  readonly lockSeconds: number;
  /** Longest time that one tool may take, in milliseconds. */
  readonly timeoutMs: number;
}

export interface RestoreOptions extends RestoreLimits {
  readonly tools: Tools;
  readonly run: RunTool;
}

/** Exit code of iptables-legacy when the lock was not to be had. Source: iptables `xtables.h`, RESOURCE_PROBLEM. */
const lockExitCode = 4;

/**
 * Runs one `iptables-restore --noflush`.
 *
 * Errors: RESTORE_REFUSED with the line that was refused: of its table nothing has changed, a table before it may have.
 * LOCK_HELD, and those of the run.
 */
export async function restoreRules(transaction: string, options: RestoreOptions): Promise<void> {
  const { tools, run, lockSeconds, timeoutMs } = options;
  const command = [tools.restore, "--noflush", "-w", String(lockSeconds)];
  const { exitCode, stderr } = await run(command, { input: transaction, timeoutMs });
  if (exitCode === 0) return;
  const words = stderr.trim();
  if (exitCode === lockExitCode && /xtables lock/.test(words)) {
    const text = `${tools.restore} did not get the xtables lock in ${lockSeconds} s: ${words}`;
    throw new BackendIptablesError("LOCK_HELD", text);
  }
  const refused = refusedLine(transaction, words);
  const text = `${tools.restore} refused ${transaction.split("\n").length - 1} lines (exit ${exitCode})${refused}: ${words}`;
  throw new BackendIptablesError("RESTORE_REFUSED", text);
}

/**
 * Returns the line that the tool's words name, for a message.
 *
 * iptables-legacy sends a table to the kernel with COMMIT, and when the kernel refuses it only that line is known.
 */
function refusedLine(transaction: string, words: string): string {
  const number = Number(/(?:line:? )(\d+)/.exec(words)?.[1] ?? Number.NaN);
  const line = transaction.split("\n")[number - 1];
  return line === undefined ? "" : ` at line ${number} "${line.slice(0, 400)}"`;
}
