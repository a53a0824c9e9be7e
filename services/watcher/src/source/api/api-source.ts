import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { type Admission, ForwardGate, type Position } from "@kpng/model/forward.ts";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeMark, type SyncMark } from "@kpng/model/wire/local-message.ts";
import type { BackoffOptions } from "@kpng/process/clock.ts";
import { pushbackOf, Reconnect, staleHeader } from "@kpng/process/connection/reconnect.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Counter, type Registry } from "prom-client";
import { makeConnectedGauge, type ProbeAnswer, probeServer } from "../probe-server.ts";
import type { ClusterSink, CurrencySink, Origin, Source } from "../source.ts";
import { WatcherError } from "../watcher-error.ts";
import { estimateOpBytes, GlobalItems } from "./global-items.ts";

/**
 * Options of {@link apiSource}, the source of a relay. A relay is a watcher that reads the cluster state from another
 * watcher: `kpng api`.
 */
export interface ApiSourceOptions {
  /** Connection to the upstream watcher: kpng or the original KPNG. */
  readonly transport: Transport;
  /** Makes a new connection after the current one does not answer. Default: `transport` is kept. */
  readonly redial?: (() => Transport) | undefined;
  readonly sink: ClusterSink;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly backoff?: BackoffOptions | undefined;
  /** How long states that are older than the one before are refused, in milliseconds. Default 60 000. */
  readonly acceptOlderAfterMs?: number | undefined;
  /**
   * Maximum memory that a batch of the upstream may take before it is applied, in bytes; `estimateOpBytes` estimates
   * it. A first batch is the whole state. Default three eighths of the memory limit.
   */
  readonly maxBatchBytes?: number | undefined;
  /** Time without an answer of the upstream after which the relay is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
}

/** Name of this source in the health of the process. */
const part = "source/api";

/**
 * Fills the sink from the global stream of another watcher: the source of a relay.
 *
 * Each complete batch becomes at most one revision. When the connection is lost, the relay keeps serving the last state
 * and reconnects with jittered backoff. The first batch of the new stream replaces the whole state, unless it is older.
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
  const accepted = new Counter({
    name: "kpng_source_older_states_accepted_total",
    help: "Older states that were accepted, because the upstream watcher offered no newer one for a minute",
    registers: [options.metrics],
  });
  const reconnect = new Reconnect(options.backoff);
  health.setWaiting(part, "waiting for the upstream watcher");
  let { transport } = options;
  let stream = new AbortController();
  const relay = new RelayCurrency({
    ...options,
    transport: () => transport,
    onOlder: () => {
      accepted.inc();
      log.error("older state accepted: the upstream watcher offered no newer one");
    },
    onFrozen: (reason) => {
      transport = options.redial?.() ?? transport;
      stream.abort(new Error(`the upstream watcher does not answer: ${reason}`));
    },
  });
  const probing = options.sink.currency && relay.run(options.sink.currency, signal);
  while (!signal.aborted) {
    let failure: unknown = new Error("the upstream watcher ended the stream");
    reconnect.opening();
    stream = new AbortController();
    const onBatch = (): void => {
      setConnected(true);
      relay.connected();
    };
    try {
      await follow({ ...options, transport, relay, onBatch }, reconnect, AbortSignal.any([signal, stream.signal]));
    } catch (error) {
      failure = stream.signal.aborted ? stream.signal.reason : error;
    }
    setConnected(false);
    if (signal.aborted) break;
    const reason = reasonOf(failure);
    relay.lost(reason);
    const { kind, ...end } = reconnect.ended(failure);
    const delayMs = kind === "lost" ? relay.retryDelayMs(end.delayMs) : end.delayMs;
    log[kind === "lost" ? "error" : "info"](`upstream watcher ${kind}`, { reason, delayMs });
    if (!health.parts.get(part)?.isReady) health.setWaiting(part, `upstream watcher: ${reason}`);
    if (kind !== "moved") losses.inc();
    await waitMs(delayMs, signal);
  }
  await probing;
}

async function follow(
  options: ApiSourceOptions & { readonly relay: RelayCurrency; readonly onBatch: () => void },
  reconnect: Reconnect,
  signal: AbortSignal,
): Promise<void> {
  const { transport, sink, log, health, relay, onBatch } = options;
  const { maxBatchBytes = Math.floor((memoryLimitBytes() * 3) / 8) } = options;
  const stop = new AbortController();
  const streamSignal = AbortSignal.any([signal, stop.signal]);
  // Flow control: each request asks for one batch, and the next request is sent when that batch is applied. A counter,
  // because a batch can be complete before the transport asks for the next request.
  let requestCount = 1;
  const batchApplied = new Wakeup();
  async function* requests() {
    while (!streamSignal.aborted) {
      if (requestCount === 0) await batchApplied.wait(streamSignal);
      if (requestCount === 0) continue;
      requestCount -= 1;
      yield create(GlobalWatchReqSchema, { Features: [Feature.Extended] });
    }
  }
  const items = new GlobalItems();
  let isSynced = false;
  let batchBytes = 0;
  let isStale = false;
  const onHeader = (headers: Headers): void => {
    isStale = headers.has(staleHeader);
  };
  try {
    for await (const op of createClient(Sets, transport).watch(requests(), { signal: streamSignal, onHeader })) {
      batchBytes += estimateOpBytes(op);
      if (batchBytes > maxBatchBytes) {
        throw new WatcherError(
          "STATE_TOO_LARGE",
          `the upstream watcher sent a batch of more than ${maxBatchBytes} bytes (--max-view-size)`,
        );
      }
      if (!items.apply(op)) continue;
      batchBytes = 0;
      const mark = op.Op.case === "Sync" ? decodeMark(op.Op.value) : undefined;
      const admission = relay.admit(mark?.position);
      if (admission.verdict === "refuse") throw new Error("the upstream watcher offers an older state");
      // Before the state, so that no node takes it for current until the next question to the upstream.
      if (!isSynced && isStale) sink.currency?.stale("the upstream watcher is stale");
      items.deliverTo(sink, originOf(mark));
      admission.applied();
      if (!isSynced) log.info("upstream watcher in sync");
      isSynced = true;
      health.setReady(part);
      reconnect.progressed();
      onBatch();
      requestCount += 1;
      batchApplied.wake();
    }
  } finally {
    stop.abort();
  }
}

/** Origin of the batch that a sync marker ends. */
function originOf(mark: SyncMark | undefined): Origin {
  return {
    source: "api",
    receivedAtMs: wallClockMs(),
    upstream: mark,
    position: mark?.position,
  };
}

/**
 * Keeps a relay from going back to an older state of its upstream watcher, and asks the upstream every few seconds
 * whether its state is current. A relay has the positions of its upstream, and holds nothing else: it sends what its
 * upstream would.
 */
export class RelayCurrency {
  readonly #gate: ForwardGate;
  readonly #options: RelayCurrencyOptions;
  /** Why there is no stream in sync; undefined while there is one. */
  #failure: string | undefined = "no stream from the upstream watcher";
  /** True after the first batch. Not derived from the gate: an original KPNG sends no positions. */
  #hasState = false;

  constructor(options: RelayCurrencyOptions) {
    this.#options = options;
    this.#gate = new ForwardGate({ acceptAfterMs: options.acceptOlderAfterMs });
  }

  /** Decides about a batch; see {@link ForwardGate}. */
  admit(position: Position | undefined): Admission {
    // Also from an upstream that is stale: the relay is then stale itself, and its nodes decide.
    const admission = this.#gate.admit({ position });
    if (admission.verdict === "accept") this.#options.onOlder();
    return admission;
  }

  /** Shortens the delay before the next stream while the upstream offers only older states. */
  retryDelayMs(delayMs: number): number {
    return this.#gate.retryDelayMs(delayMs);
  }

  /** The stream is in sync. */
  connected(): void {
    this.#failure = undefined;
    this.#hasState = true;
  }

  /** The stream has ended. */
  lost(reason: string): void {
    this.#failure = reason;
  }

  /** Probes the upstream until `signal` aborts. */
  async run(currency: CurrencySink, signal: AbortSignal): Promise<void> {
    const { transport, staleAfterMs, onFrozen } = this.#options;
    const ask = async (limitMs: number): Promise<ProbeAnswer> => {
      // The first batch is reported by the readiness of the process.
      if (!this.#hasState) return { kind: "current" };
      if (this.#failure !== undefined) return { kind: "silent", reason: this.#failure };
      try {
        const client = createClient(PositionService, transport());
        const { isStale } = await client.check({}, { signal, timeoutMs: limitMs });
        return isStale ? { kind: "behind", reason: "the upstream watcher is stale" } : { kind: "current" };
      } catch (error) {
        const reason = reasonOf(error);
        const { code } = ConnectError.from(error);
        const isFrozen = code === Code.DeadlineExceeded;
        // A proxy may send UNAVAILABLE for a frozen upstream; a busy watcher adds a delay to it.
        const isUnavailable = code === Code.Unavailable && pushbackOf(error) === undefined;
        // Any other error is an answer: for example, an original KPNG does not know the call.
        if (!isFrozen && !isUnavailable) return { kind: "current" };
        if (isFrozen) onFrozen(reason);
        return { kind: "silent", reason: `the upstream watcher does not answer: ${reason}` };
      }
    };
    await probeServer({ ask, currency, staleAfterMs }, signal);
  }
}

/** Options of {@link RelayCurrency}. */
interface RelayCurrencyOptions {
  /** Returns the current connection to the upstream watcher. */
  readonly transport: () => Transport;
  readonly acceptOlderAfterMs?: number | undefined;
  readonly staleAfterMs?: number | undefined;
  /** An older state was accepted, because the upstream offered nothing newer for some time. */
  readonly onOlder: () => void;
  /** The upstream did not answer in time, for this reason. */
  readonly onFrozen: (reason: string) => void;
}
