import { create } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeMark } from "@kpng/model/wire/decode-local.ts";
import type { BackoffOptions } from "@kpng/process/backoff.ts";
import type { Health } from "@kpng/process/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Reconnect } from "@kpng/process/reconnect.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Counter, type Registry } from "prom-client";
import { makeConnectedGauge } from "../connected-gauge.ts";
import type { ClusterSink, Origin, Source } from "../source.ts";
import { receiveOp } from "./decode-global.ts";
import { GlobalItems } from "./global-items.ts";

export interface ApiSourceOptions {
  /** Reaches the watcher upstream, ours or a Go one. */
  readonly transport: Transport;
  readonly sink: ClusterSink;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly backoff?: BackoffOptions | undefined;
}

/** Name of this source among the parts of the process's health. */
const part = "source/api";

/**
 * Fills the store from another watcher's global stream.
 *
 * Each batch becomes at most one revision, applied when it is complete. When the upstream is lost, what is held stays
 * served, and the source comes back with jittered backoff; the first batch of the new stream replaces the whole state.
 */
export function apiSource(options: ApiSourceOptions): Source {
  return { name: part, run: (signal) => run(options, signal) };
}

async function run(options: ApiSourceOptions, signal: AbortSignal): Promise<void> {
  const { log, health } = options;
  const losses = new Counter({
    name: "kpng_source_disconnects_total",
    help: "Streams from the upstream watcher that ended",
    registers: [options.metrics],
  });
  const connected = makeConnectedGauge(options.metrics);
  const setConnected = (isConnected: boolean): void =>
    connected.set({ source: "api", kind: "all" }, Number(isConnected));
  setConnected(false);
  const reconnect = new Reconnect(options.backoff);
  health.setWaiting(part, "waiting for the upstream watcher");
  while (!signal.aborted) {
    let failure: unknown = new Error("it ended the stream");
    reconnect.opening();
    try {
      await follow({ ...options, onBatch: () => setConnected(true) }, reconnect, signal);
    } catch (error) {
      failure = error;
    }
    setConnected(false);
    if (signal.aborted) return;
    const reason = reasonOf(failure);
    const { kind, delayMs } = reconnect.ended(failure);
    log[kind === "lost" ? "error" : "info"](`upstream watcher ${kind}`, { reason, delayMs });
    if (!health.parts.get(part)?.isReady) health.setWaiting(part, `upstream watcher: ${reason}`);
    if (kind !== "moved") losses.inc();
    await waitMs(delayMs, signal);
  }
}

async function follow(
  options: ApiSourceOptions & { readonly onBatch: () => void },
  reconnect: Reconnect,
  signal: AbortSignal,
): Promise<void> {
  const { transport, sink, log, health, onBatch } = options;
  const stop = new AbortController();
  const streamSignal = AbortSignal.any([signal, stop.signal]);
  // A request is sent when the batch before it has been applied: that is the whole flow control. Counted, because a
  // batch can be complete before the transport comes back for the next request.
  let credit = 1;
  const credited = new Wakeup();
  async function* requests() {
    while (!streamSignal.aborted) {
      if (credit === 0) await credited.wait(streamSignal);
      if (credit === 0) continue;
      credit -= 1;
      yield create(GlobalWatchReqSchema, { Features: [Feature.Extended] });
    }
  }
  const items = new GlobalItems();
  let isSynced = false;
  try {
    for await (const op of createClient(Sets, transport).watch(requests(), { signal: streamSignal })) {
      if (!receiveOp(op, items)) continue;
      const origin = originOf(op);
      // The first batch replaces what an earlier stream brought; after that a change costs what it changes.
      if (items.isFresh) sink.replace(items.toObjects(), origin);
      else sink.apply(items.toChanges(), origin);
      items.endBatch();
      log.debug("upstream batch applied", { services: items.serviceCount, nodes: items.nodeCount });
      if (!isSynced) log.info("upstream watcher in sync");
      isSynced = true;
      health.setReady(part);
      reconnect.progressed();
      onBatch();
      credit += 1;
      credited.wake();
    }
  } finally {
    stop.abort();
  }
}

/** Of the batch that the marker closes. */
function originOf({ Op: op }: OpItem): Origin {
  return {
    source: "api",
    receivedAtMs: wallClockMs(),
    upstream: op.case === "Sync" ? decodeMark(op.value) : undefined,
  };
}
