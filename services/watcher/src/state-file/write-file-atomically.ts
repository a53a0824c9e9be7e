import { randomBytes } from "node:crypto";
import { open, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { reasonOf } from "@kpng/process/log.ts";
import { WatcherError } from "../source/watcher-error.ts";

/**
 * Replaces the content of a file. Readers see either the old or the new content, even after a power failure.
 *
 * The file keeps its mode; a new file gets 0644 minus the umask. A symbolic link is kept and its target is replaced.
 *
 * Errors: WRITE_FAILED with the path. The file is then unchanged, and no temporary file is left.
 *
 * `stateFileSink` calls it. Separate from the sink, because this function knows nothing about the cluster.
 */
export async function writeFileAtomically(path: string, text: string): Promise<void> {
  let temporary: string | undefined;
  try {
    const target = await realpath(path).catch(() => path);
    const stats = await stat(target).catch(() => undefined);
    // The rename below would replace a device such as /dev/null by a file.
    if (stats?.isFile() === false) throw new Error("it exists and is not a regular file");
    const mode = stats && stats.mode & 0o7777;
    // In the same folder, because a rename cannot cross file systems. A dot file, because readers of folders ignore
    // them.
    temporary = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString("hex")}`);
    const file = await open(temporary, "wx", 0o644);
    try {
      if (mode !== undefined) await file.chmod(mode);
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, target);
    temporary = undefined;
    await syncFolder(dirname(target));
  } catch (cause) {
    if (temporary !== undefined) await rm(temporary, { force: true }).catch(() => undefined);
    throw new WatcherError("WRITE_FAILED", `cannot write ${path}: ${reasonOf(cause)}`, { cause });
  }
}

/** Makes the rename durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
