import { CodedError } from "@kpng/process/coded-error.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { failureExitCode } from "@kpng/process/run/exit-code.ts";
import { terminalText } from "../inspect/print/terminal-text.ts";
import { requestHint } from "../inspect/query/request-hint.ts";

/**
 * Runs a command that people use at a terminal: it fails with a line of plain text and a hint, where other commands log
 * JSON. The queries (`kpng get`), `kpng diff` and `kpng certificates` call it. Separate, because
 * these commands have nothing else in common.
 */
export async function withPlainErrors(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof CodedError)) throw error;
    const text = terminalText(reasonOf(error).replace(/^\[[A-Z_]+\] /, ""));
    const hint = text.includes("\nHint: ") ? undefined : requestHint(text);
    process.stderr.write(`Error: ${text}\n${hint === undefined ? "" : `Hint: ${hint}\n`}`);
    process.exitCode = failureExitCode();
  }
}
