import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { CalloutError } from "../callout-error.ts";
import { fill, openUnlinkedFile, readTail } from "./unlinked-file.ts";

export interface ProgramOptions {
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
export async function runProgram(options: ProgramOptions): Promise<string> {
  await using input = await openUnlinkedFile();
  await using errors = await openUnlinkedFile();
  await fill(input, options.input);
  const end = await start(options, input, errors);
  const stderr = await readTail(errors, maxErrorBytes);
  const failure = describeFailure(options, end, stderr);
  if (failure !== undefined) throw failure;
  return stderr;
}

/** How a program ended. */
interface End {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly isTimeout: boolean;
}

function start(options: ProgramOptions, input: FileHandle, errors: FileHandle): Promise<End> {
  const { program, args, env, timeoutMs, outputFd = 1 } = options;
  return new Promise((resolve, reject) => {
    const child = spawn(program, [...args], {
      stdio: [input.fd, outputFd, errors.fd],
      env: { ...process.env, ...env },
      // A process group of its own: killed as a whole, and out of reach of a Ctrl-C that is meant for us.
      detached: true,
    });
    // We may be told to end at once (a second SIGTERM): nothing would limit the program's time any more.
    const killNow = (): void => killGroup(child, "SIGKILL");
    process.once("exit", killNow);
    let isTimeout = false;
    let killTimer: NodeJS.Timeout | undefined;
    const timer = setTimeout(() => {
      isTimeout = true;
      killGroup(child, "SIGTERM");
      killTimer = setTimeout(killNow, killDelayMs);
    }, timeoutMs);
    const settle = (): void => {
      clearTimeout(timer);
      clearTimeout(killTimer);
      process.removeListener("exit", killNow);
    };
    child.once("error", (cause) => {
      settle();
      reject(new CalloutError("PROGRAM_MISSING", `${program} cannot be started${whyNot(program, cause)}`, { cause }));
    });
    child.once("exit", (exitCode, signal) => {
      settle();
      // The program has ended, but what it started may have outlived the SIGTERM.
      if (isTimeout) killNow();
      resolve({ exitCode, signal, isTimeout });
    });
  });
}

/** What the system's word leaves open. */
function whyNot(program: string, { code }: NodeJS.ErrnoException): string {
  if (code === "EACCES") return " (a folder, or not executable)";
  // A name without a slash was looked up in PATH. Of a script that is there the kernel says this for its interpreter.
  const isThere = program.includes("/") && existsSync(program);
  return code === "ENOENT" && isThere ? " (is the interpreter of its first line there, without a CR after it?)" : "";
}

/** A group whose last process is gone is no error. */
function killGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function describeFailure(options: ProgramOptions, end: End, stderr: string): CalloutError | undefined {
  const { program, timeoutMs } = options;
  const words = stderr === "" ? "it wrote nothing to its standard error" : stderr;
  if (end.isTimeout) {
    return new CalloutError("PROGRAM_TIMEOUT", `${program} took longer than ${timeoutMs} ms and was killed: ${words}`);
  }
  if (end.signal !== null)
    return new CalloutError("PROGRAM_KILLED", `${program} was killed by ${end.signal}: ${words}`);
  if (end.exitCode !== 0)
    return new CalloutError("PROGRAM_FAILED", `${program} failed (exit ${end.exitCode}): ${words}`);
  return undefined;
}
