import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";

/** O_NONBLOCK: opening a FIFO does not wait for its other end. It has no effect on regular files. */
const readFlags = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * Reads a file that an operator names, such as a certificate. Symbolic links are followed: files of mounted Secrets and
 * ConfigMaps are links.
 *
 * The functions of this file are for files whose folder another user may be able to write: a FIFO in their place would
 * block the process, a device would never end, and a symbolic link would redirect what a privileged process writes.
 *
 * Errors: those of the file system; and an Error if it is not a regular file, or larger than `maxBytes`.
 */
export function readRegularFile(path: string, maxBytes: number): Buffer {
  const file = openSync(path, readFlags);
  try {
    checkFile(fstatSync(file), maxBytes);
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}

/**
 * Opens a file that an earlier run of this program created, for reading. The last part of `path` must not be a link.
 *
 * Errors: as for {@link readRegularFile}.
 */
export async function openOwnFile(path: string, maxBytes: number): Promise<FileHandle> {
  const file = await open(path, readFlags | constants.O_NOFOLLOW);
  try {
    checkFile(await file.stat(), maxBytes);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/**
 * Creates a file with mode 0600 for writing. Whatever has its name is deleted first, except a folder.
 *
 * Errors: those of the file system, for example if another process creates the file at the same time.
 */
export async function createOwnFile(path: string): Promise<FileHandle> {
  await rm(path, { force: true });
  return open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
}

function checkFile(stats: Stats, maxBytes: number): void {
  if (!stats.isFile()) throw new Error("it is not a regular file");
  if (stats.size > maxBytes) throw new Error(`it has ${stats.size} bytes; the limit is ${maxBytes}`);
}
