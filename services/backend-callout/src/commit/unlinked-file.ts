import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open, unlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CalloutError } from "./callout-error.ts";

/** Tried in turn: a container with a read-only root usually still has the second. */
const folders = (): readonly string[] => [tmpdir(), "/dev/shm"];

/**
 * Opens a file that has no name and is gone when the last process closes it, for reading and appending.
 *
 * A program's standard streams are such files, not pipes, because Node.js makes its pipes from sockets: a script that
 * opens /dev/stdin or writes to /dev/stderr fails on a socket ("No such device or address"). A file also cannot block:
 * a program that reads nothing of 50 MB, or writes before it reads, needs no care.
 *
 * Errors: INPUT_FAILED.
 */
export async function openUnlinkedFile(): Promise<FileHandle> {
  const failures: unknown[] = [];
  for (const folder of folders()) {
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
  throw new CalloutError("INPUT_FAILED", `no file for the program's streams can be made in ${folders().join(" or ")}`, {
    cause: failures[0],
  });
}

/**
 * Fills an empty file and leaves its offset at the beginning, where the program that inherits it starts to read.
 *
 * Errors: INPUT_FAILED, e.g. if the disk is full.
 */
export async function fill(file: FileHandle, pieces: Iterable<string>): Promise<void> {
  const blockLength = 1024 * 1024;
  let position = 0;
  let block = "";
  // With a position, a write does not move the offset.
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
    for (const piece of pieces) {
      block += piece;
      if (block.length >= blockLength) await flush();
    }
    await flush();
  } catch (cause) {
    throw new CalloutError("INPUT_FAILED", "the program's input cannot be written", { cause });
  }
}

/** Returns the end of a file, at most `maxBytes`, as text without white space around it. */
export async function readTail(file: FileHandle, maxBytes: number): Promise<string> {
  const { size } = await file.stat();
  const length = Math.min(size, maxBytes);
  const buffer = Buffer.alloc(length);
  await file.read(buffer, 0, length, size - length);
  return buffer.toString("utf8").trim();
}
