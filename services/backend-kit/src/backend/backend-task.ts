import { ForwardGate } from "@kpng/model/forward.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import packageJson from "../../package.json" with { type: "json" };
import { loadView, readSavedPosition, type ViewPlace } from "../disk/view-file.ts";
import { ViewKeeper } from "../disk/view-keeper.ts";
import type { InspectedRules } from "../inspect/backend-inspection.ts";
import {
  type BackendMetrics,
  ConnectionObserver,
  createBackendMetrics,
  observeKnownNode,
  observeSyncs,
} from "../observe/backend-metrics.ts";
import { TraceSyncs } from "../observe/trace-syncs.ts";
import { type ConnectionState, followView } from "../receive/follow-view.ts";
import { Acknowledgements } from "../receive/watch-requests.ts";
import { defaultViewBytes } from "../state/item-limits.ts";
import { SyncLoop, type SyncPace } from "../sync/sync-loop.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Sync } from "../types/sync-update.ts";
import type { BackendContext } from "./backend-command.ts";

/** The backend's function that puts the view of its node into effect: either `onState` or `onChanges`. */
export type BackendCallbacks =
  | {
      /**
       * Called with the whole view when the first one arrives, and then after each change. May be async.
       *
       * Calls never overlap: changes during a call lead to one later call with the newest view. If a call throws or
       * rejects, the backend counts as failing, and the call is repeated with backoff.
       */
      readonly onState: (view: NodeView, signal: AbortSignal) => void | Promise<void>;
      readonly onChanges?: undefined;
    }
  | {
      /**
       * Called like `onState`, but also with the changes since the last successful call. If `update.mode` is "full",
       * as after the start, after a failure, and for a watcher's first view after a saved one, the backend must not
       * rely on the rules that it installed before. `update.view` is always the whole view.
       */
      readonly onChanges: Sync;
      readonly onState?: undefined;
    };

/** Fields of {@link BackendContext} that are optional here; their defaults are "", 1000 ms and false. */
type FieldWithDefault = "serviceProxyName" | "errorDelayMs" | "isOnce";

/** Options of {@link backendTask}: a {@link BackendContext}, the backend's callback, and when to call it. */
export type BackendTaskOptions = BackendCallbacks &
  SyncPace &
  Omit<BackendContext, FieldWithDefault> &
  Partial<Pick<BackendContext, FieldWithDefault>> & {
    /** Name of the backend: lower-case letters, digits, dashes; e.g. "nft". */
    readonly name: string;
    /**
     * True if nothing is put into effect: revisions are neither acknowledged nor counted as applied, and the watcher
     * counts the stream as an observer's. Default false.
     */
    readonly isDryRun?: boolean | undefined;
    /** Returns the rules for inspection (`--inspect-socket`). Default: no rules. */
    readonly ruleSets?: (() => readonly InspectedRules[]) | undefined;
    /** Folder in which the last view is saved, for a start without a watcher. Default: none, nothing is saved. */
    readonly stateFolder?: string | undefined;
    readonly wait?: typeof waitMs | undefined;
  };

/**
 * Returns the task of a backend, which follows the view of a node and calls back until it is aborted. It connects the
 * stream from the watcher (`receive/`), the saved view (`disk/`), the sync loop (`sync/`) and their observers.
 *
 * Lost streams are reopened and failed syncs repeated without limit; both are reported in health (parts "stream" and
 * the backend's name), metrics and log. Rejects only with LISTEN_FAILED, if the inspect socket cannot be opened, or,
 * with `isOnce`, after `firstViewLimitMs`: with NO_VIEW, or with the error of the last sync (in a dry run, of the first
 * sync that fails).
 */
export function backendTask(options: BackendTaskOptions): Task {
  return { name: `backend/${options.name}`, run: (signal) => run(options, signal) };
}

async function run(options: BackendTaskOptions, signal: AbortSignal): Promise<void> {
  const { name, nodeName, onState, onChanges, tracing, inspectSocket, ruleSets, isDryRun = false } = options;
  const { serviceProxyName = "", stateFolder: folder } = options;
  const metrics = createBackendMetrics(options.metrics);
  const connection = new ConnectionObserver(options.health, metrics, options.log);
  const gate = new ForwardGate({ acceptAfterMs: options.acceptOlderAfterMs });
  const place = folder === undefined ? undefined : { folder, nodeName, serviceProxyName };
  const { log, wait, metrics: registry } = options;
  const keeper = place && new ViewKeeper({ ...place, log, metrics: registry, position: () => gate.held, wait });
  const acks = new Acknowledgements();
  const program = { name: `kpng-${name}`, version: packageJson.version };
  // Load the module only if it is needed, because it takes memory.
  const inspection =
    inspectSocket === undefined
      ? undefined
      : (await import("../inspect/backend-inspection.ts")).serveInspection(inspectSocket, {
          program,
          nodeName,
          isConnected: () => connection.isConnected,
          isDryRun,
          ruleSets,
        });
  const sync: Sync = onChanges ?? ((update, stop) => onState(update.view, stop));
  const observers = [
    ...(options.observers ?? []),
    observeSyncs(metrics, isDryRun),
    keeper,
    options.proxyHealth,
    inspection?.observer,
    isDryRun ? undefined : acks,
    isDryRun ? undefined : tracing && new TraceSyncs({ tracing, nodeName, backend: name }),
  ].filter((observer) => observer !== undefined);
  // After a failed dry run, a second attempt would fail as well, because a dry run changes nothing: with `isOnce`, end
  // after 1 ms of failures.
  const onceLimitMs = isDryRun ? 1 : options.firstViewLimitMs;
  const loop = new SyncLoop({ ...options, onceLimitMs, sync, observers });
  const feed = new ViewFeed(options, { loop, metrics, connection, gate, acks, program, place });
  const done = new AbortController();
  const running = AbortSignal.any([signal, done.signal]);
  // The first part that ends, whether it finished or failed, ends the others.
  const end = (): void => done.abort();
  // The keeper ends after the sync loop, so that it can save the view of the last sync.
  const stopKeeper = new AbortController();
  const main = Promise.all([
    feed.receive(running).finally(end),
    loop.run(running).finally(end),
    feed.useSavedView(running),
    feed.requireFirstView(running).catch((error: unknown) => {
      end();
      throw error;
    }),
  ]);
  await Promise.all([
    main.finally(() => stopKeeper.abort()),
    keeper?.run(stopKeeper.signal).finally(end),
    inspection?.task.run(running).finally(end),
  ]);
}

interface FeedParts {
  readonly loop: SyncLoop;
  readonly metrics: BackendMetrics;
  readonly connection: ConnectionObserver;
  readonly gate: ForwardGate;
  readonly acks: Acknowledgements;
  readonly program: { readonly name: string; readonly version: string };
  readonly place: ViewPlace | undefined;
}

/** How long to wait for a watcher before the saved view is used, in milliseconds. */
const watcherWaitMs = 3_000;

/**
 * Supplies the sync loop with views.
 *
 * | State | Ends with |
 * |---|---|
 * | no view | the first update from a watcher, or 3 s without one if a view is saved |
 * | saved view (`#saved`) | the first update from a watcher, which is synced in full |
 * | view from a watcher | the end of the backend; a lost stream does not end this state |
 */
class ViewFeed {
  readonly #options: BackendTaskOptions;
  readonly #parts: FeedParts;
  /** Aborted by the first update from a watcher. */
  readonly #answered = new AbortController();
  #saved: NodeView | undefined;
  /** Why the last stream ended; "" if none has ended. */
  #lossReason = "";

  constructor(options: BackendTaskOptions, parts: FeedParts) {
    this.#options = options;
    this.#parts = parts;
  }

  async receive(signal: AbortSignal): Promise<void> {
    const { isDryRun: isObserver, maxViewBytes = defaultViewBytes(memoryLimitBytes()) } = this.#options;
    const { loop, metrics, connection, gate, acks, program, place } = this.#parts;
    const reportNode = observeKnownNode(this.#options);
    const onConnection = (connectionState: ConnectionState): void => {
      const { kind } = connectionState;
      if (kind === "lost" || kind === "refused") this.#lossReason = connectionState.reason;
      connection.report(connectionState);
    };
    gate.hold(place && (await readSavedPosition(place)));
    // Batches are also read during syncs, so that changes are merged and a lost stream is noticed immediately.
    const follow = { ...this.#options, maxViewBytes, acks, gate, program, isObserver, onConnection };
    for await (const update of followView(follow, signal)) {
      this.#answered.abort();
      reportNode(update);
      metrics.fromDisk.set(0);
      const saved = this.#saved?.services;
      this.#saved = undefined;
      if (saved === undefined) loop.offer(update);
      else {
        // Sync this view in full even if it equals the saved one, which may have been only partly installed.
        const touched = new Set([...saved.keys(), ...update.touched]);
        loop.offer({ ...update, touched, isFirst: false }, "first view of a watcher");
      }
    }
  }

  /**
   * Offers the saved view to the loop, unless a watcher answers in time: after a power failure, nodes may be up before
   * the watcher is. A view that cannot be used is logged. A backend whose rules outlive its process must check them
   * before it uses the view (`ViewUpdate.isFromDisk`), because they may be newer.
   */
  async useSavedView(signal: AbortSignal): Promise<void> {
    const { loop, metrics, place } = this.#parts;
    const { log, wait = waitMs, isOnce = false } = this.#options;
    // With `isOnce`, the saved view would end the run before a watcher's view is applied.
    if (place === undefined || isOnce) return;
    const answered = AbortSignal.any([signal, this.#answered.signal]);
    await wait(watcherWaitMs, answered);
    if (answered.aborted) return;
    const saved = await loadView(place).catch((error: unknown) => {
      log.error("ignoring the saved view", { reason: reasonOf(error) });
    });
    if (!saved || answered.aborted) return;
    const { header, update } = saved;
    log.info("no watcher answers: starting with the saved view", {
      folder: place.folder,
      savedAt: header.savedAt,
      isAfterReboot: update.isAfterReboot,
      services: update.view.services.size,
    });
    this.#saved = update.view;
    metrics.fromDisk.set(1);
    loop.offer(update);
  }

  /** With `isOnce`: rejects with NO_VIEW unless a watcher answers within `firstViewLimitMs`. */
  async requireFirstView(signal: AbortSignal): Promise<void> {
    const { firstViewLimitMs = 0, isOnce = false, wait = waitMs } = this.#options;
    if (!isOnce || firstViewLimitMs === 0) return;
    const answered = AbortSignal.any([signal, this.#answered.signal]);
    await wait(firstViewLimitMs, answered);
    if (answered.aborted) return;
    const { nodeName, health, watcher = "the watcher of this process" } = this.#options;
    // The stream of a watcher in this process does not break; the health of its sources says what the watcher waits
    // for.
    const reasons = this.#lossReason === "" ? health.waitingReasons("source/") : [this.#lossReason];
    const why = reasons.length === 0 ? "it has not sent one yet" : reasons.join("; ");
    const text = `no view of node "${nodeName}" from ${watcher} within ${firstViewLimitMs} ms (--watcher-timeout): ${why}`;
    throw new BackendError("NO_VIEW", text);
  }
}
