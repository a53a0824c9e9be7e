import { watch } from "node:fs";
import { stat } from "node:fs/promises";
import { dirname } from "node:path";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { listInputFiles, standardInput } from "./input-files.ts";

/** Calls `onEvent` when something in a folder may have changed, until it is closed. */
export type WatchFolder = (folder: string, onEvent: () => void) => { close(): void };

/**
 * Tells when files or folders may have changed.
 *
 * Two ways, because neither is enough. Events of the folders come at once, but not from network file systems, nor for
 * a folder that was itself replaced. Looking at each file's times, size and inode sees everything, but only once in a
 * while, and not a change within the clock's tick of the one before.
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

  /** Call it before the first reading: what changes after it is seen. */
  async start(): Promise<void> {
    await this.#watchFolders();
    this.#stamps = await this.#look();
  }

  /** Waits for a change; false once `signal` aborts. */
  async changed(pollMs: number, signal: AbortSignal): Promise<boolean> {
    while (!signal.aborted) {
      if (this.#hasEvent) return true;
      const waiting = new AbortController();
      const either = AbortSignal.any([signal, waiting.signal]);
      await Promise.race([this.#wakeup.wait(either), waitMs(pollMs, either)]);
      waiting.abort();
      if (signal.aborted) return false;
      await this.#watchFolders();
      const stamps = await this.#look();
      if (stamps !== this.#stamps) {
        this.#stamps = stamps;
        return true;
      }
    }
    return false;
  }

  /**
   * Waits until the files stay the same for `quietMs`, but for at most 20 times as long: a file that is written in place
   * is not to be read half-way. Call it right before a reading.
   */
  async settle(quietMs: number, signal: AbortSignal): Promise<void> {
    this.#hasEvent = false;
    for (let round = 0; round < 20 && !signal.aborted; round++) {
      const before = this.#stamps;
      await waitMs(quietMs, signal);
      this.#stamps = await this.#look();
      if (this.#stamps === before && round > 0) return;
    }
  }

  close(): void {
    for (const { close } of this.#watches.values()) close();
    this.#watches.clear();
  }

  async #look(): Promise<string> {
    const { files, failures } = await listInputFiles(this.#inputs);
    return JSON.stringify([files.map(({ file, stamp }) => [file, stamp]), failures]);
  }

  /** Watches the folders of the inputs, anew where another folder has taken a name. */
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
        // No events (the limit on watches, an odd file system): looking at the files each second is enough. The entry
        // keeps the next look from trying again.
        this.#watches.set(folder, { inode, close: () => undefined });
      }
    }
  }
}

/** A folder is watched itself, a file through the folder that it is in: a replaced file is another inode. */
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
