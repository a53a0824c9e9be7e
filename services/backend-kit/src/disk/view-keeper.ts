import { accessSync, constants, mkdirSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Position } from "@kpng/model/forward.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { realClock } from "@kpng/process/clock.ts";
import { addCounter } from "@kpng/process/health/metrics.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import type { Counter, Registry } from "prom-client";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";
import type { SyncObserver, SyncUpdate } from "../types/sync-update.ts";
import { readBootId, type ViewPlace, viewPath, writeViewFile } from "./view-file.ts";

interface ViewKeeperOptions extends ViewPlace {
  readonly log: Log;
  readonly metrics: Registry;
  /**
   * Returns the position of the newest received view, which may be later than that of the written view. Default: none.
   */
  readonly position?: (() => Position | undefined) | undefined;
  readonly wait?: typeof waitMs | undefined;
  /** Monotonic time in milliseconds, which measures writes. */
  readonly nowMs?: (() => number) | undefined;
  /** Milliseconds since 1970. Default Date.now. */
  readonly now?: (() => number) | undefined;
}

/** Minimum time between two writes, in milliseconds. */
const intervalMs = 5_000;

/** Minimum ratio of a pause to the duration of the write before it. */
const pausePerWrite = 50;

/**
 * Saves the view of the last successful sync on disk: after changes, at most every 5 s, and at the end. The file is
 * used if no watcher answers after a restart.
 *
 * A failed write (e.g. because the disk is full or read-only) is logged once and retried later; syncs are not affected.
 */
export class ViewKeeper implements SyncObserver {
  readonly #options: ViewKeeperOptions;
  readonly #writes: Counter<"result">;
  readonly #changed = new Wakeup();
  readonly #bootId = readBootId();
  #view: NodeView | undefined;
  /** True if `#view` is not on disk yet. */
  #isDirty = false;
  #failure = "";

  constructor(options: ViewKeeperOptions) {
    this.#options = options;
    const help = "Attempts to save the last view on disk by result";
    this.#writes = addCounter(options.metrics, "kpng_backend_view_writes_total", help, "result", ["ok", "failed"]);
  }

  succeeded(update: SyncUpdate): void {
    if (update.isFromDisk === true || this.#view === update.view) return;
    this.#view = update.view;
    this.#isDirty = true;
    this.#changed.wake();
  }

  /** Writes changes until `signal` aborts, and then once more if the newest view is not yet written. */
  async run(signal: AbortSignal): Promise<void> {
    const { wait = waitMs, nowMs = realClock.nowMs } = this.#options;
    while (!signal.aborted) {
      if (!this.#isDirty) await this.#changed.wait(signal);
      const startMs = nowMs();
      if (!signal.aborted) await this.#write();
      // Each write contains the whole view, so writes must be rare if there are very many Services.
      await wait(Math.max(intervalMs, pausePerWrite * (nowMs() - startMs)), signal);
    }
    await this.#write();
  }

  async #write(): Promise<void> {
    const view = this.#view;
    const { nodeName, log, position, now = Date.now } = this.#options;
    if (view === undefined || !this.#isDirty) return;
    const path = viewPath(this.#options);
    const savedAt = new Date(now()).toISOString();
    const header = { nodeName, savedAt, bootId: this.#bootId, position: position?.() };
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await writeViewFile(path, header, view);
    } catch (error) {
      const reason = reasonOf(error);
      this.#writes.inc({ result: "failed" });
      if (reason !== this.#failure) log.error("view not saved: trying again", { path, reason });
      this.#failure = reason;
      return;
    }
    // A view that arrived during the write is written next.
    if (this.#view === view) this.#isDirty = false;
    if (this.#failure !== "") log.info("view saved again", { path });
    this.#failure = "";
    this.#writes.inc({ result: "ok" });
  }
}

export const stateOptions: readonly OptionSpec[] = [
  {
    flags: "--state-dir <folder>",
    description:
      "folder for the last view, used at a start without a watcher; `none` to save nothing (default: /var/lib/kpng/NAME)",
  },
];

/**
 * Returns the folder that {@link stateOptions} name; undefined for `none` and an empty value. Without `--state-dir`, it
 * is /var/lib/kpng/NAME if that is writable; otherwise nothing is saved, and a log line says so. A folder given by the
 * option is always used, even if it is not writable at the moment, because each save tries again and logs its errors.
 */
export function readStateFolder(name: string, options: ParsedOptions, log: Log): string | undefined {
  const asked = textOption(options, "stateDir");
  if (asked === "none" || asked === "") return undefined;
  if (asked !== undefined) return asked;
  const folder = join("/var/lib/kpng", name);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    accessSync(folder, constants.W_OK);
  } catch (error) {
    log.info("default state folder not writable: the view is not saved", { folder, reason: reasonOf(error) });
    return undefined;
  }
  return folder;
}
