import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { BackendUserspaceError } from "./userspace-error.ts";

const timeoutMs = 60_000;

/**
 * Runs `nft` and returns its output. Errors: ENTRY_FAILED with the program's own words.
 */
export async function runTool(command: readonly string[], stdin = ""): Promise<string> {
  const end = await runProgram(command, { timeoutMs, stdin });
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  const said = end.kind === "not-started" ? "" : `: ${end.stderr.trim().slice(0, 2_000)}`;
  throw new BackendUserspaceError(
    "ENTRY_FAILED",
    `${command.join(" ")} failed (${describeEnd(end, timeoutMs)})${said}`,
  );
}
