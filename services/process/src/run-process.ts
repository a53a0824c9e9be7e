import { type Command, CommanderError } from "commander";
import { createLog, type Log, reasonOf } from "./log.ts";

/**
 * Parses the command line, runs the action, and ends the process: 0 when all is done (or what the action left in
 * process.exitCode), 1 after a failure, 2 for a command line that cannot be understood.
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
  // The reader of our output has enough (`kpng … | head`): that is an end, not a failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    createLog().error("kpng stops", { reason: `standard output cannot be written: ${reasonOf(error)}` });
    process.exit(1);
  });
  try {
    await prepare(makeCommand(stop.signal)).parseAsync([...argv]);
  } catch (error) {
    // Commander has written its own message already.
    if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : 2);
    fail(createLog(), error);
  }
  process.exit();
}

function prepare(command: Command): Command {
  command.exitOverride().showHelpAfterError("(add --help for the options and examples)");
  for (const child of command.commands) prepare(child);
  return command;
}

function fail(log: Log, error: unknown): never {
  log.error("kpng stops", {
    reason: reasonOf(error),
    ...(isExpected(error) ? {} : { stack: (error as Error)?.stack }),
  });
  process.exit(1);
}

/** An error with one of our codes says all that its reader needs; anything else is a bug and shows where it happened. */
function isExpected(error: unknown): boolean {
  return error instanceof Error && /^\[[A-Z_]+\] /.test(error.message);
}
