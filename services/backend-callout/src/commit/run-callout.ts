import { existsSync } from "node:fs";
import { type ProgramEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { CalloutError } from "./callout-error.ts";
import { fill, openUnlinkedFile, readTail } from "./unlinked-file.ts";

export interface CalloutOptions {
  /** A path, or a name that is looked up in PATH. */
  readonly program: string;
  readonly args: readonly string[];
  /** Added to our own environment. */
  readonly env: Readonly<Record<string, string>>;
  /** What the program reads on its standard input. */
  readonly input: Iterable<string>;
  /** Longest time the program may take, in milliseconds. */
  readonly timeoutMs: number;
  /** File descriptor that becomes the program's standard output. Default 1, our own. */
  readonly outputFd?: number | undefined;
}

/** Time between SIGTERM and SIGKILL for a program that takes too long. */
const killDelayMs = 2_000;

/** How much of what a program wrote to its standard error is kept: the end, where scripts say why they stop. */
const maxErrorBytes = 4 * 1024;

/**
 * Runs a program to its end and returns the end of what it wrote to its standard error, at most 4 KiB.
 *
 * It succeeded if it exits with 0 in time, whether it read its input or not. A process that it leaves behind in the
 * background is left alone then. When time is up, the program and all that it started (its process group) get SIGTERM,
 * and SIGKILL 2 s later or as soon as the program itself has ended.
 *
 * Errors: CalloutError; INPUT_FAILED, PROGRAM_MISSING, PROGRAM_FAILED, PROGRAM_KILLED, PROGRAM_TIMEOUT. Nothing of the
 * program runs any more, except after PROGRAM_FAILED and PROGRAM_KILLED what it left behind.
 */
export async function runCallout(options: CalloutOptions): Promise<string> {
  await using input = await openUnlinkedFile();
  await using errors = await openUnlinkedFile();
  await fill(input, options.input);
  const { program, args, env, timeoutMs, outputFd = 1 } = options;
  const end = await runProgram([program, ...args], {
    timeoutMs,
    graceMs: killDelayMs,
    stdin: input.fd,
    stdout: outputFd,
    stderr: errors.fd,
    env: { ...process.env, ...env },
  });
  const stderr = await readTail(errors, maxErrorBytes);
  const failure = describeFailure(options, end, stderr);
  if (failure !== undefined) throw failure;
  return stderr;
}

/** What the system's word leaves open. */
function whyNot(program: string, { code }: NodeJS.ErrnoException): string {
  if (code === "EACCES") return " (a folder, or not executable)";
  // A name without a slash was looked up in PATH. Of a script that is there the kernel says this for its interpreter.
  const isThere = program.includes("/") && existsSync(program);
  return code === "ENOENT" && isThere ? " (is the interpreter of its first line there, without a CR after it?)" : "";
}

function describeFailure({ program, timeoutMs }: CalloutOptions, end: ProgramEnd, stderr: string) {
  const words = stderr === "" ? "it wrote nothing to its standard error" : stderr;
  switch (end.kind) {
    case "not-started": {
      const { cause } = end;
      return new CalloutError("PROGRAM_MISSING", `${program} cannot be started${whyNot(program, cause)}`, { cause });
    }
    case "stopped":
      return new CalloutError(
        "PROGRAM_TIMEOUT",
        `${program} took longer than ${timeoutMs} ms and was killed: ${words}`,
      );
    case "killed":
      return new CalloutError("PROGRAM_KILLED", `${program} was killed by ${end.signal}: ${words}`);
    case "exited":
      if (end.exitCode === 0) return undefined;
      return new CalloutError("PROGRAM_FAILED", `${program} failed (exit ${end.exitCode}): ${words}`);
  }
}
