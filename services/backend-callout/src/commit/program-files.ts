import { randomUUID } from "node:crypto";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { type FileHandle, open, unlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { CodedError } from "@kpng/process/process-error.ts";

/** Failures of a run of the program; each code has a row in docs/errors.md. */
type CalloutErrorCode = "INPUT_FAILED" | "PROGRAM_MISSING" | "PROGRAM_FAILED" | "PROGRAM_KILLED" | "PROGRAM_TIMEOUT";

/** A failed run of the callout backend's program. */
export class CalloutError extends CodedError<CalloutErrorCode> {
  override readonly name = "CalloutError";
}

/**
 * Opens a file without a name, for reading and appending. It disappears when the last process closes it.
 *
 * The program's standard input is such a file, not a pipe: Node.js makes its pipes from sockets, and a script that
 * opens /dev/stdin fails on a socket ("No such device or address"). A file also never blocks, whether the program
 * ignores 50 MB of input or writes before it reads.
 *
 * `runCallout` opens one for each run and fills it with the view. Errors: INPUT_FAILED.
 */
export async function openUnlinkedFile(): Promise<FileHandle> {
  const failures: unknown[] = [];
  for (const folder of temporaryFolders()) {
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
  throw new CalloutError(
    "INPUT_FAILED",
    `cannot create a file for the program's standard input in ${temporaryFolders().join(" or ")}`,
    {
      cause: failures[0],
    },
  );
}

/**
 * Writes text to an empty file and leaves its offset at 0, where the program that inherits it starts to read.
 *
 * Errors: INPUT_FAILED, for example if the disk is full.
 */
export async function fill(file: FileHandle, chunks: Iterable<string>): Promise<void> {
  const blockLength = 1024 * 1024;
  let position = 0;
  let block = "";
  // A write with a position does not move the offset.
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
    throw new CalloutError("INPUT_FAILED", "cannot write the program's input", { cause });
  }
}

/** The result of reading the standard error of one run. */
export interface ErrorOutput {
  /** The end of the output, at most 4 KiB, where scripts say why they fail; trimmed. */
  readonly tail: string;
  /** Number of bytes before `tail`, which were discarded. */
  readonly droppedBytes: number;
}

const maxTailBytes = 4 * 1024;

/** Time between two reads. Each takes at most what the pipe holds, 64 KiB, so a program can write about 6 MB/s. */
const readIntervalMs = 10;

/** Time between two reads after the run has ended, when only processes in the background can write. */
const backgroundIntervalMs = 1_000;

/**
 * Standard error of one run: a pipe without a name. We keep only the end of the output, so that no program can fill a
 * disk. `runCallout` opens one for each run.
 */
interface ErrorPipe {
  /** For the program to inherit. It is open for reading too, so that a program that outlives us gets no SIGPIPE. */
  readonly fd: number;
  /**
   * Ends the run: closes `fd`, and returns what was written. What processes in the background write from now on is
   * discarded, until the last one closes its standard error.
   */
  finish(): ErrorOutput;
}

/**
 * Opens a pipe by means of `mkfifo`. The pipes that Node.js makes are sockets, and a script that opens /dev/stderr
 * fails on a socket.
 *
 * Errors: INPUT_FAILED.
 */
export async function openErrorPipe(): Promise<ErrorPipe> {
  const failures: string[] = [];
  for (const folder of temporaryFolders()) {
    const path = join(folder, `kpng-callout-${randomUUID()}`);
    const timeoutMs = 10_000;
    const end = await runProgram(["mkfifo", "-m", "600", path], { timeoutMs });
    if (end.kind !== "exited" || end.exitCode !== 0) {
      failures.push(end.kind === "exited" ? end.stderr.trim() : describeEnd(end, timeoutMs));
      continue;
    }
    try {
      const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
      return drainPipe(readFd, openSync(path, constants.O_RDWR));
    } finally {
      await unlink(path);
    }
  }
  throw new CalloutError(
    "INPUT_FAILED",
    `cannot create a pipe for the program's standard error: ${failures.join("; ")}`,
  );
}

function drainPipe(readFd: number, fd: number): ErrorPipe {
  const block = Buffer.alloc(64 * 1024);
  let tail: Buffer = Buffer.alloc(0);
  let totalBytes = 0;
  /** Returns false at the end of the pipe: no process has it open for writing. */
  const readBlock = (): boolean => {
    try {
      const length = readSync(readFd, block);
      totalBytes += length;
      tail = Buffer.concat([tail, block.subarray(0, length)]).subarray(-maxTailBytes);
      return length > 0;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      return true;
    }
  };
  const timer = setInterval(readBlock, readIntervalMs);
  return {
    fd,
    finish: () => {
      clearInterval(timer);
      closeSync(fd);
      let isOpen = readBlock();
      const output = { tail: tail.toString("utf8").trim(), droppedBytes: totalBytes - tail.length };
      const background = setInterval(() => {
        if (isOpen) isOpen = readBlock();
        else {
          clearInterval(background);
          closeSync(readFd);
        }
      }, backgroundIntervalMs);
      background.unref();
      return output;
    },
  };
}

/**
 * Folders to try for the files and pipes of a run, in order: /dev/shm is usually writable in a container whose root is
 * read-only.
 */
export const temporaryFolders = (): readonly string[] => [tmpdir(), "/dev/shm"];
