import type { Tools } from "./find-tools.ts";
import { findIncompatibleTables, incompatibleError } from "./incompatible-tables.ts";
import { BackendIptablesError } from "./iptables-error.ts";
import type { RunTool } from "./run-tool.ts";

/**
 * Returns the output of iptables-save for all tables in use. `removeRules` reads the rules with it, for `--cleanup`.
 *
 * It does not pass `-t`: iptables-legacy would load the kernel module of the table, which then costs time for each
 * packet.
 *
 * Errors: SAVE_FAILED; TABLE_INCOMPATIBLE if iptables-nft cannot print a table that we use; and those of `run`.
 */
export async function readRules(tools: Tools, run: RunTool, timeoutMs: number): Promise<string> {
  let saved = "";
  await scanRules(tools, run, timeoutMs, (text) => {
    saved += text;
  });
  return saved;
}

/**
 * Like {@link readRules}, but passes the output to `take` while it arrives, in pieces cut anywhere. `openRuleSets`
 * gives it to each `IptablesRuleSet`, because tens of thousands of rules are many megabytes of text.
 *
 * This file only runs the tool; `InstalledRulesReader` finds our rules in the output.
 */
export async function scanRules(
  tools: Tools,
  run: RunTool,
  timeoutMs: number,
  take: (text: string) => void,
): Promise<void> {
  const finder = findIncompatibleTables();
  const onOutput = (text: string): void => {
    finder.take(text);
    take(text);
  };
  const { exitCode, stdout, stderr } = await run([tools.save], { timeoutMs, onOutput });
  if (exitCode !== 0) {
    throw new BackendIptablesError("SAVE_FAILED", `${tools.save} failed (exit status ${exitCode}): ${stderr.trim()}`);
  }
  if (stdout !== "") onOutput(stdout);
  const [table] = finder.tables;
  if (table !== undefined) throw await incompatibleError(table, tools, run, timeoutMs);
}
