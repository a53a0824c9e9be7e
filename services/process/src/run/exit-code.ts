import type { Command } from "commander";

/**
 * Exit code of a query that failed. 0 and 1 are its answers, as with diff(1), cmp(1) and kubectl diff, so that a script
 * does not take a failure for an answer.
 */
const failedQueryExitCode = 2;

/**
 * Makes the exit code of a command its answer, if `isQuery` returns true for the options: the action sets
 * process.exitCode to 0 or 1 when it has the answer. Without an answer, after a failure or an early stop, the exit code
 * is 2.
 *
 * Must be called before other hooks are added to the command, so that their errors count as failures too.
 *
 * `kpng diff` calls it, and so do the commands of backends, for options such as `--diff`.
 */
export function answersByExitCode(
  command: Command,
  isQuery: (options: Readonly<Record<string, unknown>>) => boolean,
): Command {
  return command.hook("preAction", (_command, acting) => {
    if (isQuery(acting.optsWithGlobals())) process.exitCode = failedQueryExitCode;
  });
}

/** Exit code of a failure: 1, or 2 if the exit code of this run is an answer. */
export function failureExitCode(): number {
  return process.exitCode === undefined ? 1 : failedQueryExitCode;
}
