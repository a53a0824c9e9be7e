import type { Tools } from "./find-tools.ts";
import { BackendIptablesError } from "./iptables-error.ts";
import type { RunTool } from "./run-tool.ts";

/**
 * Returns what iptables-save prints of all tables that are in use.
 *
 * Without `-t`: to ask iptables-legacy for one table loads that table's module, and once loaded it costs each packet.
 *
 * Errors: SAVE_FAILED, and those of the run.
 */
export async function readRules(tools: Tools, run: RunTool, timeoutMs: number): Promise<string> {
  let saved = "";
  await scanRules(tools, run, timeoutMs, (text) => {
    saved += text;
  });
  return saved;
}

/** The same, given to `take` as it comes, in pieces cut anywhere: of very many rules the text is many megabytes. */
export async function scanRules(
  tools: Tools,
  run: RunTool,
  timeoutMs: number,
  take: (text: string) => void,
): Promise<void> {
  const { exitCode, stdout, stderr } = await run([tools.save], { timeoutMs, onOutput: take });
  if (exitCode !== 0) {
    throw new BackendIptablesError("SAVE_FAILED", `${tools.save} failed (exit ${exitCode}): ${stderr.trim()}`);
  }
  if (stdout !== "") take(stdout);
}
