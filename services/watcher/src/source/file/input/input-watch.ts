import { watch } from "node:fs";
import { stat } from "node:fs/promises";
import { dirname } from "node:path";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { listInputFiles, standardInput } from "./input-files.ts";

/**
 * Detects changes of the inputs of a file source, by events and by polling. `fileSource` waits with it before each
 * read. Separate from it, because it reads no contents.
 *
 * Neither events nor polling alone is sufficient. Folder events are immediate, but network file systems and replaced
 * folders send none. Polling times, size and inode of each file detects everything, but late, and misses a second
 * change within one tick of the file system's clock.
 */
export class InputWatch {
  readonly #inputs: readonly string[];
  readonly #watchFolder: WatchFolder;
  readonly #wakeup = new Wakeup();
  readonly #watches = new Map<string, { readonly inode: string; close(): void }>();
  #hasEvent = false;
  #stamps = "";

  constructor(inputs: readonly string[], watchFolder: WatchFolder = watchWithNode) {
    this.#inputs = inputs;
    this.#watchFolder = watchFolder;
  }

  /** Starts watching. Call it before the files are first read, so that no change is missed. */
  async start(): Promise<void> {
    await this.#watchFolders();
    this.#stamps = await this.#poll();
  }

  /** Waits for a change. Returns false if `signal` aborted. */
  async changed(pollMs: number, signal: AbortSignal): Promise<boolean> {
    while (!signal.aborted) {
      if (this.#hasEvent) return true;
      const waiting = new AbortController();
      const either = AbortSignal.any([signal, waiting.signal]);
      await Promise.race([this.#wakeup.wait(either), waitMs(pollMs, either)]);
      waiting.abort();
      if (signal.aborted) return false;
      await this.#watchFolders();
      const stamps = await this.#poll();
      if (stamps !== this.#stamps) {
        this.#stamps = stamps;
        return true;
      }
    }
    return false;
  }

  /**
   * Waits until the files are unchanged for `quietMs`, at most 20 times that long, so that a file that is written in
   * place is not read half-written. Call it right before the files are read.
   */
  async settle(quietMs: number, signal: AbortSignal): Promise<void> {
    this.#hasEvent = false;
    for (let round = 0; round < 20 && !signal.aborted; round++) {
      const before = this.#stamps;
      await waitMs(quietMs, signal);
      this.#stamps = await this.#poll();
      if (this.#stamps === before && round > 0) return;
    }
  }

  close(): void {
    for (const { close } of this.#watches.values()) close();
    this.#watches.clear();
  }

  async #poll(): Promise<string> {
    const { files, failures } = await listInputFiles(this.#inputs);
    return JSON.stringify([files.map(({ file, stamp }) => [file, stamp]), failures]);
  }

  /** Watches the folders of the inputs. A folder that was replaced is watched again. */
  async #watchFolders(): Promise<void> {
    for (const folder of await foldersOf(this.#inputs)) {
      const stats = await stat(folder, { bigint: true }).catch(() => undefined);
      const inode = stats === undefined ? "" : `${stats.dev} ${stats.ino}`;
      if (this.#watches.get(folder)?.inode === inode) continue;
      this.#watches.get(folder)?.close();
      this.#watches.delete(folder);
      if (inode === "") continue;
      try {
        const folderWatch = this.#watchFolder(folder, () => {
          this.#hasEvent = true;
          this.#wakeup.wake();
        });
        this.#watches.set(folder, { inode, close: () => folderWatch.close() });
      } catch {
        // No events, because of the limit on watches or the file system: polling is enough. The entry keeps the next
        // poll from retrying.
        this.#watches.set(folder, { inode, close: () => undefined });
      }
    }
  }
}

/** Calls `onEvent` whenever something in a folder may have changed, until it is closed. */
export type WatchFolder = (folder: string, onEvent: () => void) => { close(): void };

/** Folders to watch: files are watched through their folder, because a replaced file has another inode. */
async function foldersOf(inputs: readonly string[]): Promise<ReadonlySet<string>> {
  const folders = new Set<string>();
  for (const input of inputs) {
    if (input === standardInput) continue;
    const stats = await stat(input).catch(() => undefined);
    if (stats === undefined || stats.isFile()) folders.add(dirname(input));
    else if (stats.isDirectory()) folders.add(input);
  }
  return folders;
}

function watchWithNode(folder: string, onEvent: () => void): { close(): void } {
  const watcher = watch(folder, { persistent: false }, onEvent);
  watcher.on("error", onEvent);
  return { close: () => watcher.close() };
}
