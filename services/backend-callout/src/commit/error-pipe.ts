import { randomUUID } from "node:crypto";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { unlink } from "node:fs/promises";
import { join } from "node:path";
import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { CalloutError } from "./callout-error.ts";
import { temporaryFolders } from "./temporary-folders.ts";

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
 * disk. `runCallout` opens one for each run. Separate from it, because reading goes on after the run.
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
