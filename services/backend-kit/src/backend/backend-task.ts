import type { Transport } from "@connectrpc/connect";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import { diffFromSaved, startFromDisk } from "../disk/start-from-disk.ts";
import type { StateOptions } from "../disk/state-folder.ts";
import { ViewKeeper } from "../disk/view-keeper.ts";
import type { InspectedRules } from "../inspect/inspected-rules.ts";
import { createBackendMetrics, observeSyncs } from "../observe/backend-metrics.ts";
import { ConnectionObserver } from "../observe/connection-observer.ts";
import type { ProxyHealth } from "../observe/proxy-health.ts";
import { TraceSyncs } from "../observe/trace-syncs.ts";
import { UnknownPorts } from "../observe/unknown-ports.ts";
import { Acknowledgements } from "../receive/acknowledgements.ts";
import { type ConnectionState, followView } from "../receive/follow-view.ts";
import { SyncLoop, type SyncPace } from "../sync/sync-loop.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Sync } from "../types/sync-update.ts";

/** What a backend does with the view of its node; exactly one of the two. */
export type BackendCallbacks =
  | {
      /**
       * Called with the whole view, first when there is one and then whenever it changed. May be async.
       *
       * Never called while the call before it runs: what changes meanwhile comes as one later call with the newest
       * view. If it throws or rejects, the backend counts as failing and the call is repeated with backoff.
       */
      readonly onState: (view: NodeView, signal: AbortSignal) => void | Promise<void>;
      readonly onChanges?: undefined;
    }
  | {
      /**
       * The same with what changed since the last call that succeeded, for a backend that does not want to look at
       * everything each time. `update.mode` is "full" where it must: after the start and after a failure nothing that
       * stands in the kernel is to be trusted. `update.view` always is the whole view.
       */
      readonly onChanges: Sync;
      readonly onState?: undefined;
    };

export type BackendTaskOptions = BackendCallbacks &
  SyncPace & {
    /** Of the backend: lower case letters, digits, dashes; e.g. "nft". */
    readonly name: string;
    /** Reaches the watcher, in this process or elsewhere. */
    readonly transport: Transport;
    readonly nodeName: string;
    /**
     * Value of the label service.kubernetes.io/service-proxy-name of the Services wanted; "" for the watcher's default.
     */
    readonly serviceProxyName?: string | undefined;
    /** Most that packed operations may be when they are unpacked, in bytes. Default 64 MiB. */
    readonly maxMessageBytes?: number | undefined;
    readonly log: Log;
    readonly health: Health;
    readonly metrics: Registry;
    /**
     * First delay after a lost stream or a failed sync, in milliseconds; it doubles up to 30 s, or 1 s for a socket of
     * this node without a listener. Default 1000.
     */
    readonly errorDelayMs?: number | undefined;
    /** True to end after the first sync that succeeds. Default false. */
    readonly isOnce?: boolean | undefined;
    /** With `isOnce`: longest time until there is a view, in milliseconds; 0 for none. Default none. */
    readonly firstViewLimitMs?: number | undefined;
    /** What `transport` reaches, for messages. Default the watcher of this process. */
    readonly watcher?: string | undefined;
    /** Told of all that happens; see `observe/proxy-health.ts`. */
    readonly proxyHealth?: ProxyHealth | undefined;
    /** Where traces of its syncs go. Default nowhere. */
    readonly tracing?: Tracing | undefined;
    /** Where the last view is kept for a start without watcher. Default nowhere. */
    readonly state?: StateOptions | undefined;
    /** Path of a unix socket on which questions about the backend are answered. Default none. */
    readonly inspectSocket?: string | undefined;
    /** What is answered of its rules. Default: it keeps none. */
    readonly ruleSets?: (() => readonly InspectedRules[]) | undefined;
    /** Whether rules of this backend stand already, which then stay until a watcher answers. Default: none do. */
    readonly hasRules?: (() => Promise<boolean>) | undefined;
    /** Default {@link waitMs}. */
    readonly wait?: typeof waitMs | undefined;
  };

/**
 * A backend as a part of a process: follows the view of a node and calls back, until it is aborted.
 *
 * A lost stream is opened again for ever, a failed sync is repeated for ever, and both can be seen in health (parts
 * "stream" and the backend's name), metrics and log. Rejects only with LISTEN_FAILED, if `inspectSocket` cannot be had,
 * and with NO_VIEW after `firstViewLimitMs`.
 */
export function backendTask(options: BackendTaskOptions): Task {
  return { name: `backend/${options.name}`, run: (signal) => run(options, signal) };
}

async function run(options: BackendTaskOptions, signal: AbortSignal): Promise<void> {
  const { onState, onChanges, log, wait = waitMs } = options;
  const metrics = createBackendMetrics(options.metrics);
  const connection = new ConnectionObserver(options.health, metrics, log);
  const keeper = makeKeeper(options, () => connection.isConnected);
  const sync: Sync = onChanges ?? ((update, stop) => onState(update.view, stop));
  const acks = new Acknowledgements();
  const program = { name: `kpng-${options.name}`, version: packageJson.version };
  const { tracing, nodeName } = options;
  const tracer = tracing && new TraceSyncs({ tracing, nodeName, backend: options.name });
  const isConnected = (): boolean => connection.isConnected;
  const { inspectSocket, ruleSets } = options;
  // Loaded here: a node on which nobody asks does not pay for it.
  const inspection =
    inspectSocket === undefined
      ? undefined
      : (await import("../inspect/serve-inspection.ts")).serveInspection(inspectSocket, {
          program,
          nodeName,
          isConnected,
          ruleSets,
        });
  const own = [observeSyncs(metrics), keeper, options.proxyHealth, acks, tracer, inspection?.observer];
  const observers = [...(options.observers ?? []), ...own].filter((one) => one !== undefined);
  const loop = new SyncLoop({ ...options, sync, observers });
  const done = new AbortController();
  const running = AbortSignal.any([signal, done.signal]);
  // Whichever ends first, by its work or by a mistake of ours, ends the others.
  const end = (): void => done.abort();
  const answered = new AbortController();
  const unknownPorts = new UnknownPorts(log);
  let saved: NodeView | undefined;
  let lossReason = "";
  const receive = async (): Promise<void> => {
    const onConnection = (state: ConnectionState): void => {
      if (state.kind === "lost" || state.kind === "refused") lossReason = state.reason;
      connection.tell(state);
    };
    // Read ahead: what arrives during a sync is merged here, and a lost stream is noticed at once.
    for await (const update of followView({ ...options, acks, program, onConnection, wait }, running)) {
      answered.abort();
      unknownPorts.tell(update.changes);
      metrics.fromDisk.set(0);
      loop.offer(saved === undefined ? update : diffFromSaved(saved, update));
      saved = undefined;
    }
  };
  const fallBack = async (): Promise<void> => {
    const { nodeName, serviceProxyName = "", state, hasRules, isOnce = false } = options;
    if (state === undefined || isOnce) return;
    const start = { state, nodeName, serviceProxyName, log, wait, hasRules };
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
  // The last view is kept after the last sync.
  const keeping = new AbortController();
  const main = Promise.all([receive().finally(end), loop.run(running).finally(end), fallBack(), giveUp()]);
  const kept = keeper?.run(keeping.signal).finally(end);
  const answering = inspection?.task.run(running).finally(end);
  await Promise.all([main.finally(() => keeping.abort()), kept, answering]);
}

function noView(options: BackendTaskOptions, lossReason: string): BackendError {
  const { nodeName, firstViewLimitMs, health, watcher = "the watcher of this process" } = options;
  // What a watcher in this process still waits for is among the parts of its health; its stream is not lost.
  const reasons = lossReason === "" ? health.waitingReasons("source/") : [lossReason];
  const why = reasons.length === 0 ? "it has sent none yet" : reasons.join("; ");
  const text = `no view of node "${nodeName}" from ${watcher} within ${firstViewLimitMs} ms (--watcher-timeout): ${why}`;
  return new BackendError("NO_VIEW", text);
}

function makeKeeper(options: BackendTaskOptions, isConnected: () => boolean): ViewKeeper | undefined {
  const { nodeName, serviceProxyName = "", log, metrics, wait } = options;
  const folder = options.state?.folder;
  if (folder === undefined) return undefined;
  return new ViewKeeper({ folder, nodeName, serviceProxyName, log, metrics, isConnected, wait });
}
