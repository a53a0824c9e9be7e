import { ForwardGate } from "@kpng/model/forward.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import packageJson from "../../package.json" with { type: "json" };
import { readSavedPosition } from "../disk/view-file.ts";
import { afterSaved, startFromDisk, ViewKeeper } from "../disk/view-keeper.ts";
import type { InspectedRules } from "../inspect/backend-inspection.ts";
import {
  ConnectionObserver,
  createBackendMetrics,
  observeKnownNode,
  observeSyncs,
} from "../observe/backend-metrics.ts";
import { TraceSyncs } from "../observe/trace-syncs.ts";
import { type ConnectionState, followView } from "../receive/follow-view.ts";
import { defaultViewBytes } from "../receive/item-limits.ts";
import { Acknowledgements } from "../receive/watch-requests.ts";
import { SyncLoop, type SyncPace } from "../sync/sync-loop.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Sync } from "../types/sync-update.ts";
import type { BackendContext } from "./backend-command.ts";

/** Function of a backend that puts the view of its node into effect: exactly one of the two. */
export type BackendCallbacks =
  | {
      /**
       * Called with the whole view: the first one, and then after each change. May be async.
       *
       * Calls never overlap: changes during a call lead to one later call with the newest view. If it throws or
       * rejects, the backend counts as failing, and the call is repeated with backoff.
       */
      readonly onState: (view: NodeView, signal: AbortSignal) => void | Promise<void>;
      readonly onChanges?: undefined;
    }
  | {
      /**
       * Called like `onState`, with the changes since the last successful call in addition. If `update.mode` is "full",
       * the backend must not rely on what it installed before: after the start, after a failure, and on request.
       * `update.view` is always the whole view.
       */
      readonly onChanges: Sync;
      readonly onState?: undefined;
    };

/** Fields of {@link BackendContext} that have a default here: "", 1000 ms and false. */
type FieldWithDefault = "serviceProxyName" | "errorDelayMs" | "isOnce";

/** Options of {@link backendTask}: a {@link BackendContext}, the backend's callback, and when to call it. */
export type BackendTaskOptions = BackendCallbacks &
  SyncPace &
  Omit<BackendContext, FieldWithDefault> &
  Partial<Pick<BackendContext, FieldWithDefault>> & {
    /** Name of the backend: lower-case letters, digits, dashes; e.g. "nft". */
    readonly name: string;
    /** True if nothing is put into effect: revisions are neither acknowledged nor counted as applied. Default false. */
    readonly isDryRun?: boolean | undefined;
    /** Returns the rules for inspection (`--inspect-socket`). Default: no rules. */
    readonly ruleSets?: (() => readonly InspectedRules[]) | undefined;
    /** Default {@link waitMs}. */
    readonly wait?: typeof waitMs | undefined;
  };

/**
 * The task of a backend: follows the view of a node and calls back until it is aborted. It connects the stream from the
 * watcher (`receive/`), the saved view (`disk/`), the sync loop (`sync/`) and their observers. Every backend is built
 * on it: by `runBackend`, by `proxyBackend`, or directly in `BackendCommand.makeTask`.
 *
 * Lost streams and failed syncs are repeated without limit, and reported in health (parts "stream" and the backend's
 * name), metrics and log. Rejects only with LISTEN_FAILED, if the inspect socket cannot be opened, and with NO_VIEW
 * after `firstViewLimitMs`.
 */
export function backendTask(options: BackendTaskOptions): Task {
  return { name: `backend/${options.name}`, run: (signal) => run(options, signal) };
}

async function run(options: BackendTaskOptions, signal: AbortSignal): Promise<void> {
  const { onState, onChanges, log, wait = waitMs } = options;
  const { maxViewBytes = defaultViewBytes(memoryLimitBytes()) } = options;
  const metrics = createBackendMetrics(options.metrics);
  const connection = new ConnectionObserver(options.health, metrics, log);
  const gate = new ForwardGate({ acceptAfterMs: options.acceptOlderAfterMs });
  const keeper = makeKeeper(options, gate);
  const sync: Sync = onChanges ?? ((update, stop) => onState(update.view, stop));
  const acks = new Acknowledgements();
  const program = { name: `kpng-${options.name}`, version: packageJson.version };
  const { tracing, nodeName } = options;
  const tracer = tracing && new TraceSyncs({ tracing, nodeName, backend: options.name });
  const isConnected = (): boolean => connection.isConnected;
  const { inspectSocket, ruleSets } = options;
  // Loaded only if needed, because it needs memory.
  const inspection =
    inspectSocket === undefined
      ? undefined
      : (await import("../inspect/backend-inspection.ts")).serveInspection(inspectSocket, {
          program,
          nodeName,
          isConnected,
          isDryRun: options.isDryRun,
          ruleSets,
        });
  const { isDryRun = false } = options;
  const applied = isDryRun ? [] : [acks, tracer];
  const own = [observeSyncs(metrics, isDryRun), keeper, options.proxyHealth, inspection?.observer, ...applied];
  const observers = [...(options.observers ?? []), ...own].filter((one) => one !== undefined);
  const loop = new SyncLoop({ ...options, onceLimitMs: options.firstViewLimitMs, sync, observers });
  const done = new AbortController();
  const running = AbortSignal.any([signal, done.signal]);
  // The first part that ends, by its work or by an error, ends the others.
  const end = (): void => done.abort();
  const answered = new AbortController();
  const reportNode = observeKnownNode(options);
  let saved: NodeView | undefined;
  let lossReason = "";
  const receive = async (): Promise<void> => {
    const onConnection = (state: ConnectionState): void => {
      if (state.kind === "lost" || state.kind === "refused") lossReason = state.reason;
      connection.report(state);
    };
    gate.hold(await readSavedPosition(options.state?.folder, nodeName, options.serviceProxyName ?? ""));
    // Batches are read during syncs, too: changes are merged, and a lost stream is noticed at once.
    const follow = { ...options, maxViewBytes, acks, gate, program, onConnection, wait };
    for await (const update of followView(follow, running)) {
      answered.abort();
      reportNode(update);
      metrics.fromDisk.set(0);
      // The saved view may have been used in part, and may equal this view: it is synced in full.
      if (saved === undefined) loop.offer(update);
      else loop.offer(afterSaved(saved, update), "first view of a watcher");
      saved = undefined;
    }
  };
  const fallBack = async (): Promise<void> => {
    const { nodeName, serviceProxyName = "", state, isOnce = false } = options;
    if (state === undefined || isOnce) return;
    const start = { state, nodeName, serviceProxyName, log, wait };
    const update = await startFromDisk(start, AbortSignal.any([running, answered.signal]));
    if (update === undefined) return;
    saved = update.view;
    metrics.fromDisk.set(1);
    loop.offer(update);
  };
  const giveUp = async (): Promise<void> => {
    const { firstViewLimitMs = 0, isOnce = false } = options;
    if (!isOnce || firstViewLimitMs === 0) return;
    const waiting = AbortSignal.any([running, answered.signal]);
    await wait(firstViewLimitMs, waiting);
    if (waiting.aborted) return;
    end();
    throw noView(options, lossReason);
  };
  // The keeper ends after the sync loop, to save the view of the last sync.
  const keeping = new AbortController();
  const main = Promise.all([receive().finally(end), loop.run(running).finally(end), fallBack(), giveUp()]);
  const kept = keeper?.run(keeping.signal).finally(end);
  const answering = inspection?.task.run(running).finally(end);
  await Promise.all([main.finally(() => keeping.abort()), kept, answering]);
}

function noView(options: BackendTaskOptions, lossReason: string): BackendError {
  const { nodeName, firstViewLimitMs, health, watcher = "the watcher of this process" } = options;
  // A watcher in this process does not lose its stream; the health of its sources says what it waits for.
  const reasons = lossReason === "" ? health.waitingReasons("source/") : [lossReason];
  const why = reasons.length === 0 ? "it has not sent one yet" : reasons.join("; ");
  const text = `no view of node "${nodeName}" from ${watcher} within ${firstViewLimitMs} ms (--watcher-timeout): ${why}`;
  return new BackendError("NO_VIEW", text);
}

function makeKeeper(options: BackendTaskOptions, gate: ForwardGate): ViewKeeper | undefined {
  const { nodeName, serviceProxyName = "", log, metrics, wait } = options;
  const folder = options.state?.folder;
  if (folder === undefined) return undefined;
  return new ViewKeeper({
    folder,
    nodeName,
    serviceProxyName,
    log,
    metrics,
    position: () => gate.held,
    wait,
  });
}
