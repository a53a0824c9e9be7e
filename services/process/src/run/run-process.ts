import { type Command, CommanderError } from "commander";
import { createLog, type Log, reasonOf } from "../log.ts";
import { ProcessError } from "../process-error.ts";
import { failureExitCode } from "./exit-code.ts";

/**
 * Parses the command line, runs the action, and ends the process: 0 when all is done (or what the action left in
 * process.exitCode), 1 after a failure, of which one is that standard output cannot be written, 2 for a command line or an
 * environment that cannot be understood. Where the exit code is an answer (`answersByExitCode`), a failure is 2.
 *
 * The first SIGTERM, SIGINT or SIGHUP aborts `signal`, the second ends the process at once.
 */
export async function runProcess(
  makeCommand: (signal: AbortSignal) => Command,
  argv: readonly string[] = process.argv,
): Promise<never> {
  const stop = new AbortController();
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(name, () => {
      if (stop.signal.aborted) process.exit(130);
      stop.abort();
    });
  }
  process.stdout.on("error", (cause: NodeJS.ErrnoException) => {
    // The reader of our output has enough (`kpng … | head`): that is an end, not a failure.
    if (cause.code === "EPIPE") process.exit();
    fail(createLog(), new ProcessError("OUTPUT_FAILED", "standard output cannot be written", { cause }));
  });
  // Hints of commands go there beside the log, and are no more worth than its lines.
  process.stderr.on("error", () => undefined);
  const command = prepareOrEnd(() => makeCommand(stop.signal));
  try {
    await command.parseAsync([...argv]);
  } catch (error) {
    // Commander has written its own message already.
    if (!(error instanceof CommanderError)) fail(createLog(), error);
    // Of --help and --version it is 0.
    if (error.exitCode !== 0) process.exit(2);
  }
  await outputWritten();
  process.exit();
}

/** Resolves when what was printed has been written; what became of it is told as an event, a moment later. */
function outputWritten(): Promise<void> {
  return new Promise((resolve) => process.stdout.write("", () => setImmediate(resolve)));
}

/** What is refused before the command line is read stands in the environment, as the value of an option. */
function prepareOrEnd(makeCommand: () => Command): Command {
  try {
    return prepare(makeCommand());
  } catch (error) {
    fail(createLog(), error, 2);
  }
}

function prepare(command: Command): Command {
  command.exitOverride().showHelpAfterError("(add --help for the options and examples)");
  for (const child of command.commands) prepare(child);
  return command;
}

function fail(log: Log, error: unknown, exitCode = failureExitCode()): never {
  log.error("kpng stops", {
    reason: reasonOf(error),
    ...(isExpected(error) ? {} : { stack: (error as Error)?.stack }),
  });
  process.exit(exitCode);
}

/** An error with one of our codes says all that its reader needs; anything else is a bug and shows where it happened. */
function isExpected(error: unknown): boolean {
  return error instanceof Error && /^\[[A-Z_]+\] /.test(error.message);
}
