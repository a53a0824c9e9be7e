import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { NodeView } from "@kpng/model/node-view.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { SyncObserver, SyncUpdate } from "../types/sync-update.ts";
import { readBootId } from "./boot-id.ts";
import { writeViewFile } from "./view-file.ts";

export interface ViewKeeperOptions {
  readonly folder: string;
  readonly nodeName: string;
  readonly serviceProxyName: string;
  readonly log: Log;
  readonly metrics: Registry;
  /** True while the watcher would tell of a change. */
  readonly isConnected: () => boolean;
  /**
   * Shortest time between two writes, in milliseconds; never less than 50 times as long as the last one took. Default 5
   * 000.
   */
  readonly intervalMs?: number | undefined;
  /** A view that does not change is written again after so many milliseconds, so that it does not age. Default 1 h. */
  readonly refreshMs?: number | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
  /** Milliseconds since 1970. Default Date.now. */
  readonly now?: (() => number) | undefined;
}

/** A pause is so many times as long as the write before it, so that writing takes a fiftieth of the time at most. */
const pausePerWrite = 50;

/** The file of a view: one for each service-proxy-name. */
export function viewPath(folder: string, serviceProxyName: string): string {
  // A label's value has letters, digits, dashes, dots and underscores only; anything else stays one name as well.
  return join(folder, serviceProxyName === "" ? "view" : `view.${encodeURIComponent(serviceProxyName)}`);
}

/**
 * Keeps the last view whose sync succeeded on disk: after changes, at most every `intervalMs`, and at the end.
 *
 * A disk that is full or read-only is said once and tried again; nothing else comes of it.
 */
export class ViewKeeper implements SyncObserver {
  readonly #options: ViewKeeperOptions;
  readonly #metrics: ReturnType<typeof createMetrics>;
  readonly #changed = new Wakeup();
  readonly #bootId = readBootId();
  #view: NodeView | undefined;
  #currentAtMs = 0;
  #isDirty = false;
  #failure = "";

  constructor(options: ViewKeeperOptions) {
    this.#options = options;
    this.#metrics = createMetrics(options.metrics);
  }

  succeeded(update: SyncUpdate): void {
    if (update.isFromDisk === true) return;
    this.#currentAtMs = this.#now();
    if (this.#view === update.view) return;
    this.#view = update.view;
    this.#isDirty = true;
    this.#changed.wake();
  }

  /** Writes until `signal` aborts, and then once more what is not yet written. */
  async run(signal: AbortSignal): Promise<void> {
    const { intervalMs = 5_000, refreshMs = 3_600_000, wait = waitMs } = this.#options;
    while (!signal.aborted) {
      if (!this.#isDirty) await this.#waitForChange(refreshMs, wait, signal);
      const startMs = this.#now();
      if (!signal.aborted) await this.#write();
      // All of the view is written, however little of it changed: with very many Services that must stay rare.
      const pauseMs = Math.min(refreshMs, pausePerWrite * (this.#now() - startMs));
      await wait(Math.max(intervalMs, pauseMs), signal);
    }
    await this.#write();
  }

  async #waitForChange(refreshMs: number, wait: typeof waitMs, signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    await Promise.race([this.#changed.wait(either), wait(refreshMs, either)]);
    over.abort();
  }

  /** Writes what there is; also what was written before, if it is still current. */
  async #write(): Promise<void> {
    const view = this.#view;
    const { folder, nodeName, serviceProxyName, log, isConnected } = this.#options;
    const isCurrent = isConnected();
    if (view === undefined || !(this.#isDirty || isCurrent)) return;
    if (isCurrent) this.#currentAtMs = this.#now();
    const path = viewPath(folder, serviceProxyName);
    const header = { nodeName, serviceProxyName, currentAtMs: this.#currentAtMs, bootId: this.#bootId };
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await writeViewFile(path, header, view);
    } catch (error) {
      const reason = reasonOf(error);
      this.#metrics.writes.inc({ result: "failed" });
      if (reason !== this.#failure) log.error("view not saved", { path, reason });
      this.#failure = reason;
      return;
    }
    // What came while it was written is written next.
    if (this.#view === view) this.#isDirty = false;
    if (this.#failure !== "") log.info("view saved again", { path });
    this.#failure = "";
    this.#metrics.writes.inc({ result: "ok" });
    this.#metrics.savedAt.set(this.#currentAtMs / 1_000);
  }

  #now(): number {
    return (this.#options.now ?? Date.now)();
  }
}

function createMetrics(registry: Registry) {
  const registers = [registry];
  const writes = new Counter({
    name: "kpng_backend_view_writes_total",
    help: "Writes of the last view to disk by result",
    labelNames: ["result"] as const,
    registers,
  });
  for (const result of ["ok", "failed"]) writes.inc({ result }, 0);
  const savedAt = new Gauge({
    name: "kpng_backend_view_saved_timestamp_seconds",
    help: "When the view on disk was last known to be current; 0 if none was saved by this process",
    registers,
  });
  return { writes, savedAt };
}
