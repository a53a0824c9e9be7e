import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open, unlink } from "node:fs/promises";
import { join } from "node:path";
import { CalloutError } from "./callout-error.ts";
import { temporaryFolders } from "./temporary-folders.ts";

/**
 * Opens a file without a name, for reading and appending. It disappears when the last process closes it.
 *
 * The program's standard input is such a file, not a pipe: Node.js makes its pipes from sockets, and a script that
 * opens /dev/stdin fails on a socket ("No such device or address"). A file also never blocks, whether the program
 * ignores 50 MB of input or writes before it reads.
 *
 * `runCallout` opens one for each run and fills it with the view. Separate from `error-pipe.ts`, because standard error
 * must be read while the program writes. Errors: INPUT_FAILED.
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
