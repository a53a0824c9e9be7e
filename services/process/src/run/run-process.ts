import { type Command, CommanderError, Help } from "commander";
import { createLog, type Log, reasonOf, stackOf } from "../log.ts";
import { describeOption, expertGroup } from "../options.ts";
import { ProcessError } from "../process-error.ts";
import { aborted } from "../wait.ts";

/**
 * Parses the command line, runs the action, and exits.
 *
 * | exit code | |
 * |---|---|
 * | 0 | success, unless the action has set process.exitCode |
 * | 1 | failure, including a failed write to standard output; 2 if the exit status is the result (`reportsByExitStatus`) |
 * | 2 | invalid command line or environment |
 * | 130 | a second SIGTERM, SIGINT or SIGHUP; the first one aborts `signal`. See {@link sameInterruptMs} |
 */
export async function runProcess(
  makeCommand: (signal: AbortSignal) => Command,
  argv: readonly string[] = process.argv,
): Promise<never> {
  const stop = new AbortController();
  let stoppedAtMs = 0;
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(name, () => {
      if (!stop.signal.aborted) stoppedAtMs = performance.now();
      else if (performance.now() - stoppedAtMs > sameInterruptMs) process.exit(130);
      stop.abort(new Error(name));
    });
  }
  process.stdout.on("error", (cause: NodeJS.ErrnoException) => {
    // It is not a failure if the reader of our output has closed the pipe (`kpng … | head`). End as after a signal, so
    // that sockets and temporary files are removed.
    if (cause.code === "EPIPE") stop.abort(new Error("EPIPE"));
    else fail(createLog(), new ProcessError("OUTPUT_FAILED", "standard output cannot be written", { cause }));
  });
  // As with log lines, text that cannot be written to standard error is lost, and the process continues.
  process.stderr.on("error", () => undefined);
  const words = argv.slice(2);
  const command = prepare(
    makeOrEnd(() => makeCommand(stop.signal)),
    words.includes(allFlag),
  );
  try {
    await command.parseAsync(
      words.map((word) => (word === allFlag ? "--help" : word)),
      { from: "user" },
    );
  } catch (error) {
    // Commander has already written its own message.
    if (!(error instanceof CommanderError)) fail(createLog(), error);
    // The exit code of --help and --version is 0.
    if (error.exitCode !== 0) process.exit(2);
  }
  await outputWritten(stop.signal);
  process.exit();
}

/** Flag that prints the help of a command including the options for experts. */
const allFlag = "--help-all";

/**
 * Time after a signal during which further signals count as the same one, in milliseconds. On Ctrl-C, a terminal sends
 * SIGINT to all foreground processes, and `npx` and `npm run` pass on the one they receive, so the program gets two
 * signals at the same time.
 */
const sameInterruptMs = 500;

/**
 * Resolves when pending output has been written, and the "error" event of a failed write has been emitted; at the
 * latest {@link lastOutputMs} after `signal` aborts, because a parent that stops this process may no longer read.
 */
function outputWritten(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write("", () => setImmediate(resolve));
    void aborted(signal).then(() => setTimeout(resolve, lastOutputMs));
  });
}

/** Time after a signal for output that a slow reader has not yet taken, in milliseconds. */
const lastOutputMs = 1_000;

/** Errors before the command line is parsed come from option values in the environment, so they exit with 2. */
function makeOrEnd(makeCommand: () => Command): Command {
  try {
    return makeCommand();
  } catch (error) {
    fail(createLog(), error, 2);
  }
}

function prepare(command: Command, showsExperts: boolean): Command {
  command.exitOverride().showHelpAfterError("(add --help for the options and examples)");
  const experts = command.options.filter(({ helpGroupHeading: group, hidden }) => group === expertGroup && !hidden);
  command
    .configureHelp({
      // Option names are long; with the standard minimum, commander would not wrap their descriptions at all.
      minWidthToWrap: 20,
      optionDescription: describeOption,
      visibleOptions(one) {
        const options = Help.prototype.visibleOptions.call(this, one);
        return showsExperts ? options : options.filter((option) => !experts.includes(option));
      },
    })
    .configureOutput({ getOutHelpWidth: () => process.stdout.columns ?? 100 });
  const example = command.options.find(({ envVar, hidden }) => envVar !== undefined && !hidden);
  if (example !== undefined) {
    const more = showsExperts || experts.length === 0 ? "" : `--help-all lists ${experts.length} more options. `;
    const variable = `${example.envVar} for ${example.long}`;
    command.addHelpText("after", `${more}Options have environment variables, such as ${variable}.`);
  }
  for (const child of command.commands) prepare(child, showsExperts);
  return command;
}

/** Reports an error and exits. A person at a terminal gets plain text; otherwise the error is a log line. */
function fail(log: Log, error: unknown, exitCode = failureExitCode()): never {
  const reason = reasonOf(error);
  const stack = stackOf(error);
  if (process.stderr.isTTY) process.stderr.write(`Error: ${stack ?? reason}\n`);
  else log.error("kpng stops", { reason, ...(stack === undefined ? {} : { stack }) });
  process.exit(exitCode);
}

/** Exit status of a failed run whose normal exit status, 0 or 1, is its result, as in diff(1) and kubectl diff. */
const failedResultExitCode = 2;

/**
 * Makes the exit status of a command its result if `exitStatusIsResult` returns true for the options: the action sets
 * process.exitCode to 0 or 1. A run that fails or stops before that exits with 2.
 *
 * Must be called before other hooks are added to the command, so that errors from these hooks also count as failures.
 */
export function reportsByExitStatus(
  command: Command,
  exitStatusIsResult: (options: Readonly<Record<string, unknown>>) => boolean,
): Command {
  return command.hook("preAction", (_command, acting) => {
    if (exitStatusIsResult(acting.optsWithGlobals())) process.exitCode = failedResultExitCode;
  });
}

/** Exit status of a failure: 1, or 2 if the exit status of this run is its result. */
export function failureExitCode(): number {
  return process.exitCode === undefined ? 1 : failedResultExitCode;
}

/** Returns the version string of a program, e.g. "kpng 0.1.0 (Node.js v24.21.0, linux/x64)". */
export function formatVersion(program: string, version: string): string {
  return `${program} ${version} (Node.js ${process.version}, ${process.platform}/${process.arch})`;
}
