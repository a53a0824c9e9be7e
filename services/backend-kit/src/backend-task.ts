import type { Transport } from "@connectrpc/connect";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { Health } from "@kpng/process/health.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import type { waitMs } from "@kpng/process/wait.ts";
import type { Registry } from "prom-client";
import { type BackendMetrics, createBackendMetrics } from "./observe/backend-metrics.ts";
import { type ConnectionState, followView } from "./receive/follow-view.ts";
import { type Sync, SyncLoop, type SyncPace } from "./sync/sync-loop.ts";

/** What a backend does with the view of its node; exactly one of the two. */
export type BackendCallbacks =
  | {
      /**
       * Called with the whole view, first when there is one and then whenever it changed. May be async.
       *
       * Never called while the call before it runs: what changes meanwhile comes as one later call with the newest view.
       * If it throws or rejects, the backend counts as failing and the call is repeated with backoff.
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
    /** Value of the label service.kubernetes.io/service-proxy-name of the Services wanted; "" for the watcher's default. */
    readonly serviceProxyName?: string | undefined;
    readonly log: Log;
    readonly health: Health;
    readonly metrics: Registry;
    /** First delay after a lost stream or a failed sync, in milliseconds; it doubles up to 30 s. Default 1000. */
    readonly errorDelayMs?: number | undefined;
    /** True to end after the first sync that succeeds. Default false. */
    readonly isOnce?: boolean | undefined;
    /** Default {@link waitMs}. */
    readonly wait?: typeof waitMs | undefined;
  };

/**
 * A backend as a part of a process: follows the view of a node and calls back, until it is aborted.
 *
 * Never rejects: a lost stream is opened again for ever, a failed sync is repeated for ever, and both can be seen in
 * health (parts "stream" and the backend's name), metrics and log.
 */
export function backendTask(options: BackendTaskOptions): Task {
  return { name: `backend/${options.name}`, run: (signal) => run(options, signal) };
}

async function run(options: BackendTaskOptions, signal: AbortSignal): Promise<void> {
  const { onState, onChanges, transport, nodeName, serviceProxyName } = options;
  const metrics = createBackendMetrics(options.metrics);
  const onConnection = connectionObserver(options.health, metrics, options.log);
  const sync: Sync = onChanges ?? ((update, stop) => onState(update.view, stop));
  const { log, errorDelayMs, wait } = options;
  const loop = new SyncLoop({ ...options, sync, metrics });
  const done = new AbortController();
  const running = AbortSignal.any([signal, done.signal]);
  const receive = async (): Promise<void> => {
    const updates = followView(
      { transport, nodeName, serviceProxyName, log, errorDelayMs, onConnection, wait },
      running,
    );
    // Read ahead: what arrives during a sync is merged here, and a lost stream is noticed at once.
    for await (const update of updates) loop.offer(update);
  };
  // Whichever ends first, by its work or by a mistake of ours, ends the other.
  const end = (): void => done.abort();
  await Promise.all([receive().finally(end), loop.run(running).finally(end)]);
}

/** A backend that has synced once serves on without a watcher, so a loss alone does not make it unhealthy or unready. */
function connectionObserver(health: Health, metrics: BackendMetrics, log: Log): (state: ConnectionState) => void {
  const part = "stream";
  let hasSynced = false;
  let isConnected = false;
  health.setWaiting(part, "waiting for the watcher's first sync marker");
  return (state) => {
    if (state.kind === "lost") {
      metrics.reconnects.inc();
      metrics.connected.set(0);
      isConnected = false;
      if (hasSynced)
        health.set(part, { isHealthy: true, isReady: true, reason: `keeping the last view: ${state.reason}` });
      else health.setWaiting(part, state.reason);
      return;
    }
    metrics.connected.set(1);
    if (!isConnected) {
      log.info("stream in sync", { revision: Number(state.revision) });
      health.setReady(part);
    }
    isConnected = true;
    hasSynced = true;
  };
}
