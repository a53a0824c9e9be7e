import { CodedError } from "@kpng/process/coded-error.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { failureExitCode } from "@kpng/process/run/exit-code.ts";
import { terminalText } from "../inspect/print/terminal-text.ts";

/**
 * Runs a command of a person at a terminal: it fails with a line of plain text, where other commands log JSON. The
 * queries (`kpng get`) and `kpng certificates` run in it.
 */
export async function withPlainErrors(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof CodedError)) throw error;
    process.stderr.write(`Error: ${terminalText(reasonOf(error).replace(/^\[[A-Z_]+\] /, ""))}\n`);
    process.exitCode = failureExitCode();
  }
}
