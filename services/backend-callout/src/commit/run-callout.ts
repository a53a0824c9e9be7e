import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open, unlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { CodedError } from "@kpng/process/process-error.ts";

type CalloutErrorCode = "PROGRAM_FAILED";

export class CalloutError extends CodedError<CalloutErrorCode> {
  override readonly name = "CalloutError";
}

export interface CalloutOptions {
  /** Path, or name to look up in PATH. */
  readonly program: string;
  readonly args: readonly string[];
  /** Complete: nothing is inherited. */
  readonly env: NodeJS.ProcessEnv;
  readonly input: Iterable<string>;
  /** Time limit of the run, in milliseconds. */
  readonly timeoutMs: number;
  /** File descriptor of the program's standard output. Default 1, the standard output of this process. */
  readonly outputFd?: number | undefined;
}

/** Time between SIGTERM and SIGKILL after the time limit, in milliseconds. */
const killDelayMs = 2_000;

/**
 * Runs a program until it ends. The program shares the standard error of this process.
 *
 * The run succeeds if the program exits with status 0 in time, whether or not it has read its input; processes that it
 * left in the background keep running. When the time limit is reached, its process group gets SIGTERM, followed by
 * SIGKILL 2 s later or as soon as the program itself has ended.
 *
 * Errors: PROGRAM_FAILED; processes that the program left in the background may then still be running.
 */
export async function runCallout(options: CalloutOptions): Promise<void> {
  const { program, args, env, timeoutMs, outputFd = 1 } = options;
  await using input = await openUnlinkedFile();
  await fill(input, options.input);
  const streams = { stdin: input.fd, stdout: outputFd, stderr: 2 };
  const end = await runProgram([program, ...args], { timeoutMs, graceMs: killDelayMs, env, ...streams });
  if (end.kind === "exited" && end.exitCode === 0) return;
  const cause = end.kind === "not-started" ? end.cause : undefined;
  const text = `${program} failed (${describeEnd(end, timeoutMs)})`;
  throw new CalloutError("PROGRAM_FAILED", text, { cause });
}

/**
 * Opens an unnamed file for reading and appending. The file disappears when the last process closes it.
 *
 * The program's standard input is such a file, not a pipe: Node.js makes its pipes from sockets, and a script that
 * opens /dev/stdin fails on a socket ("No such device or address"). A file also never blocks, whether the program
 * ignores 50 MB of input or writes before it reads.
 *
 * Errors: PROGRAM_FAILED.
 */
async function openUnlinkedFile(): Promise<FileHandle> {
  // /dev/shm is usually writable in a container whose root is read-only.
  const folders = [tmpdir(), "/dev/shm"];
  const failures: unknown[] = [];
  for (const folder of folders) {
    const path = join(folder, `kpng-callout-${randomUUID()}`);
    try {
      const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND;
      const file = await open(path, flags, 0o600);
      await unlink(path);
      return file;
    } catch (cause) {
      failures.push(cause);
    }
  }
  const text = `cannot create a file for the program's standard input in ${folders.join(" or ")}`;
  throw new CalloutError("PROGRAM_FAILED", text, { cause: failures[0] });
}

/**
 * Writes text to an empty file and leaves the file offset at 0, where the program starts to read. Errors:
 * PROGRAM_FAILED.
 */
async function fill(file: FileHandle, chunks: Iterable<string>): Promise<void> {
  const blockLength = 1024 * 1024;
  let position = 0;
  let block = "";
  // A write with an explicit position does not move the offset.
  const flush = async (): Promise<void> => {
    const bytes = Buffer.from(block);
    block = "";
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position);
      done += bytesWritten;
      position += bytesWritten;
    }
  };
  try {
    for (const chunk of chunks) {
      block += chunk;
      if (block.length >= blockLength) await flush();
    }
    await flush();
  } catch (cause) {
    throw new CalloutError("PROGRAM_FAILED", "cannot write the program's input", { cause });
  }
}

/**
 * Variables that hold kpng's credentials or name the files that contain them: headers and TLS files for the trace
 * exporter, and TLS files and tokens for kpng's options. KUBECONFIG is not included, because kpng-callout does not read
 * it and scripts that call kubectl need it.
 */
const credentials = /^(OTEL_EXPORTER_OTLP_(\w+_)?(HEADERS|CERTIFICATE|CLIENT_KEY)|KPNG_(\w+_)?(TLS_\w+|TOKEN))$/;

/** Returns the variables that the program inherits from `own`, our environment: all except kpng's credentials. Pure. */
export function inheritedEnvironment(own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(own).filter(([name]) => !credentials.test(name)));
}
