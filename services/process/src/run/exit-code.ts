import type { Command } from "commander";

/**
 * Exit code of a question without an answer. 0 and 1 are answers, as of diff(1), cmp(1) and kubectl diff, and a script
 * that asks must not take "it could not be found out" for one of them.
 */
export const unansweredExitCode = 2;

/**
 * Makes the exit code of a command an answer where `isQuestion` says so of the options: its action sets process.exitCode
 * to 0 or 1 once it knows. Until then, and after any failure, the process ends with 2; a stop before the answer is one.
 *
 * Call it before other hooks are added to the command: what they refuse is a failure, too.
 */
export function answersByExitCode(
  command: Command,
  isQuestion: (options: Readonly<Record<string, unknown>>) => boolean,
): Command {
  return command.hook("preAction", (_command, acting) => {
    if (isQuestion(acting.optsWithGlobals())) process.exitCode = unansweredExitCode;
  });
}

/** Exit code of a failure: 1, or 2 of a run whose exit code is an answer. */
export function failureExitCode(): number {
  return process.exitCode === undefined ? 1 : unansweredExitCode;
}
