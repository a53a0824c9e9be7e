import { existsSync } from "node:fs";
import type { ProgramCgroup } from "@kpng/backend-kit/exec/run-program.ts";
import { type ProgramEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { CalloutError, type ErrorOutput, fill, openErrorPipe, openUnlinkedFile } from "./program-files.ts";

/** One run of the program of kpng-callout. */
export interface CalloutOptions {
  /** Path, or name to look up in PATH. */
  readonly program: string;
  readonly args: readonly string[];
  /** All its variables. */
  readonly env: NodeJS.ProcessEnv;
  /** Standard input of the program. */
  readonly input: Iterable<string>;
  /** Time limit of the run, in milliseconds. */
  readonly timeoutMs: number;
  /** Cgroup of the run. Default: none, and a process that leaves the program's session survives the time limit. */
  readonly cgroup?: ProgramCgroup | undefined;
  /** File descriptor of the program's standard output. Default 1, that of this process. */
  readonly outputFd?: number | undefined;
}

/** Time between SIGTERM and SIGKILL after the time limit. */
const killDelayMs = 2_000;

/**
 * Runs a program to its end and returns the last 4 KiB of its standard error, and how much came before.
 *
 * The run succeeds if the program exits with status 0 in time, whether or not it read its input; processes that it left
 * in the background keep running. At the time limit, its process group gets SIGTERM; group and cgroup get SIGKILL 2 s
 * later or as soon as the program itself has ended.
 *
 * Errors: CalloutError with INPUT_FAILED, PROGRAM_MISSING, PROGRAM_FAILED, PROGRAM_KILLED or PROGRAM_TIMEOUT. After
 * PROGRAM_FAILED and PROGRAM_KILLED, processes that the program left in the background may still run.
 */
export async function runCallout(options: CalloutOptions): Promise<ErrorOutput> {
  await using input = await openUnlinkedFile();
  await fill(input, options.input);
  const { program, args, env, timeoutMs, cgroup, outputFd = 1 } = options;
  const errors = await openErrorPipe();
  const end = await runProgram([program, ...args], {
    timeoutMs,
    graceMs: killDelayMs,
    stdin: input.fd,
    stdout: outputFd,
    stderr: errors.fd,
    env,
    cgroup,
  });
  const stderr = errors.finish();
  const failure = describeFailure(options, end, stderr);
  if (failure !== undefined) throw failure;
  return stderr;
}

/** Returns a hint at the cause of a program that does not start; "" if the system's error says enough. */
function startHint(program: string, { code }: NodeJS.ErrnoException): string {
  if (code === "EACCES") return " (it is a folder or not executable)";
  // For a script that exists, the kernel reports ENOENT if its interpreter does not exist.
  const exists = program.includes("/") && existsSync(program);
  return code === "ENOENT" && exists
    ? " (its first line names an interpreter that does not exist; check for a CR at the end of that line)"
    : "";
}

function describeFailure({ program, timeoutMs }: CalloutOptions, end: ProgramEnd, stderr: ErrorOutput) {
  const dropped =
    stderr.droppedBytes === 0 ? "" : ` (${stderr.droppedBytes} bytes of standard error before that dropped)`;
  const details = stderr.tail === "" ? "standard error is empty" : `${stderr.tail}${dropped}`;
  switch (end.kind) {
    case "not-started": {
      const { cause } = end;
      return new CalloutError("PROGRAM_MISSING", `${program} cannot be started${startHint(program, cause)}`, { cause });
    }
    case "stopped":
      return new CalloutError(
        "PROGRAM_TIMEOUT",
        `${program} exceeded the limit of ${timeoutMs} ms (--timeout) and was killed: ${details}`,
      );
    case "killed":
      return new CalloutError("PROGRAM_KILLED", `${program} was killed by ${end.signal}: ${details}`);
    case "exited":
      if (end.exitCode === 0) return undefined;
      return new CalloutError("PROGRAM_FAILED", `${program} failed with exit status ${end.exitCode}: ${details}`);
  }
}

/**
 * Variables that hold credentials of kpng, or name the files with them: headers and TLS files of the trace exporter,
 * TLS files and tokens of kpng's options. KUBECONFIG is not among them: kpng-callout does not read it, and scripts that
 * call kubectl need it.
 */
const credentials = /^(OTEL_EXPORTER_OTLP_(\w+_)?(HEADERS|CERTIFICATE|CLIENT_KEY)|KPNG_(\w+_)?(TLS_\w+|TOKEN))$/;

/** Returns the variables of `own`, our environment, that the program inherits: all except credentials of kpng. Pure. */
export function inheritedEnvironment(own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(own).filter(([name]) => !credentials.test(name)));
}
