import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { ForwardGate } from "@kpng/model/forward.ts";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeMark, type SyncMark } from "@kpng/model/wire/local-message.ts";
import type { BackoffOptions } from "@kpng/process/clock.ts";
import { endError, pushbackOf, Reconnect, staleHeader } from "@kpng/process/connection/reconnect.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import { type ProbeAnswer, probeServer } from "../probe-server.ts";
import type { ClusterSink, Origin, Source } from "../source.ts";
import { type ConnectedGauge, makeConnectedGauge } from "../source-metrics.ts";
import { WatcherError } from "../watcher-error.ts";
import { estimateOpBytes, GlobalItems } from "./global-items.ts";

export interface ApiSourceOptions {
  /** Connection to the upstream watcher: kpng or the original KPNG. */
  readonly transport: Transport;
  /** Opens a new connection when the upstream no longer answers. Default: `transport` stays in use. */
  readonly redial?: (() => Transport) | undefined;
  readonly sink: ClusterSink;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly backoff?: BackoffOptions | undefined;
  /** Time for which states that are older than the previous one are refused, in milliseconds. Default 60 000. */
  readonly acceptOlderAfterMs?: number | undefined;
  /** Time without an answer from the upstream after which the relay is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
}

const part = "source/api";

/**
 * Fills the sink from the global stream of another watcher. This is the source of `kpng api`, a relay. Each complete
 * batch becomes at most one revision. When the connection is lost, the relay keeps serving the last state and
 * reconnects. The first batch of the new stream replaces the whole state, unless it is older.
 */
export function apiSource(options: ApiSourceOptions): Source {
  return { name: part, run: (signal) => new Relay(options).run(signal) };
}

class Relay {
  readonly #options: ApiSourceOptions;
  readonly #gate: ForwardGate;
  readonly #reconnect: Reconnect;
  readonly #connected: ConnectedGauge;
  #transport: Transport;
  #stream = new AbortController();
  /** The reason why no stream is in sync; undefined while one is. */
  #failure: string | undefined = "no stream from the upstream watcher";
  /** True after the first batch. The gate cannot detect this, because the original KPNG sends no positions. */
  #hasState = false;

  constructor(options: ApiSourceOptions) {
    this.#options = options;
    this.#gate = new ForwardGate({ acceptAfterMs: options.acceptOlderAfterMs });
    this.#reconnect = new Reconnect(options.backoff);
    this.#transport = options.transport;
    this.#connected = makeConnectedGauge(options.metrics);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log, health, sink, staleAfterMs } = this.#options;
    this.#setConnected(false);
    health.setWaiting(part, "waiting for the upstream watcher");
    const ask = (limitMs: number): Promise<ProbeAnswer> => this.#ask(limitMs, signal);
    const probing = probeServer({ ask, currency: sink.currency, staleAfterMs }, signal);
    while (!signal.aborted) {
      let failure: unknown;
      this.#reconnect.opening();
      this.#stream = new AbortController();
      try {
        await this.#follow(AbortSignal.any([signal, this.#stream.signal]));
      } catch (error) {
        failure = this.#stream.signal.aborted ? this.#stream.signal.reason : error;
      }
      this.#setConnected(false);
      if (signal.aborted) break;
      const reason = reasonOf(failure);
      this.#failure = reason;
      const { kind, ...end } = this.#reconnect.ended(failure);
      const delayMs = kind === "lost" ? this.#gate.retryDelayMs(end.delayMs) : end.delayMs;
      log[kind === "lost" ? "error" : "info"](`upstream watcher ${kind}`, { reason, delayMs });
      if (!this.#hasState) {
        if (kind === "lost") health.setFailing(part, `upstream watcher: ${reason}`);
        else health.setWaiting(part, `upstream watcher: ${reason}`);
      }
      await waitMs(delayMs, signal);
    }
    await probing;
  }

  /** Follows one stream until it ends; then always rejects. */
  async #follow(signal: AbortSignal): Promise<never> {
    // Memory of a batch before it is applied; see `estimateOpBytes`. The first batch contains the whole state.
    const maxBatchBytes = Math.floor((memoryLimitBytes() * 3) / 8);
    const stop = new AbortController();
    const streamSignal = AbortSignal.any([signal, stop.signal]);
    // Flow control: each request is for one batch, and the next request is sent when that batch has been applied. A
    // counter is needed because a batch can be complete before the transport takes the next request.
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
    let batchBytes = 0;
    let isStale = false;
    let trailers = new Headers();
    const onTrailer = (received: Headers): void => {
      trailers = received;
    };
    const onHeader = (headers: Headers): void => {
      isStale = headers.has(staleHeader);
    };
    try {
      const client = createClient(Sets, this.#transport);
      for await (const op of client.watch(requests(), { signal: streamSignal, onHeader, onTrailer })) {
        batchBytes += estimateOpBytes(op);
        if (batchBytes > maxBatchBytes) {
          throw new WatcherError(
            "STATE_TOO_LARGE",
            `the upstream watcher sent a batch of more than ${maxBatchBytes} bytes, three eighths of the memory limit`,
          );
        }
        if (!items.apply(op)) continue;
        batchBytes = 0;
        this.#deliver(items, op.Op.case === "Sync" ? decodeMark(op.Op.value) : undefined, isStale);
        requestCount += 1;
        batchApplied.wake();
      }
      throw endError(trailers);
    } finally {
      stop.abort();
    }
  }

  /** Applies a batch. Throws if its state is older than the previous one. */
  #deliver(items: GlobalItems, mark: SyncMark | undefined, isStale: boolean): void {
    const { sink, log, health } = this.#options;
    // The gate treats a stale upstream like any other: the relay then becomes stale itself, and its nodes decide.
    const offer = { position: mark?.position, isUnchanged: () => items.isUnchanged(sink) };
    const { verdict, doubt, applied } = this.#gate.admit(offer);
    if (verdict === "refuse") throw new Error(`the upstream watcher offers ${doubt}`);
    if (verdict === "accept") {
      log.error("older state accepted: the upstream watcher has offered no newer one for a minute");
    }
    const isFirst = this.#failure !== undefined;
    // This is reported before the state arrives; otherwise, a node could consider an outdated state current until the
    // next probe.
    if (isFirst && isStale) sink.currency.markStale("the upstream watcher is stale");
    const origin: Origin = { source: "api", receivedAtMs: wallClockMs(), upstream: mark, position: mark?.position };
    items.deliverTo(sink, origin);
    applied();
    if (isFirst) log.info("upstream watcher in sync");
    this.#failure = undefined;
    this.#hasState = true;
    health.setReady(part);
    this.#reconnect.progressed();
    this.#setConnected(true);
  }

  async #ask(limitMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
    // Readiness already reports that the first batch is missing.
    if (!this.#hasState) return { kind: "current" };
    if (this.#failure !== undefined) return { kind: "silent", reason: this.#failure };
    try {
      const client = createClient(PositionService, this.#transport);
      const { isStale } = await client.check({}, { signal, timeoutMs: limitMs });
      return isStale ? { kind: "behind", reason: "the upstream watcher is stale" } : { kind: "current" };
    } catch (error) {
      const { code } = ConnectError.from(error);
      const isFrozen = code === Code.DeadlineExceeded;
      // A proxy may send UNAVAILABLE for a frozen upstream. A busy watcher sends it with a retry delay.
      const isUnavailable = code === Code.Unavailable && pushbackOf(error) === undefined;
      // Any other error counts as an answer: the original KPNG does not know the call.
      if (!isFrozen && !isUnavailable) return { kind: "current" };
      const reason = `the upstream watcher does not answer: ${reasonOf(error)}`;
      if (isFrozen) {
        this.#transport = this.#options.redial?.() ?? this.#transport;
        this.#stream.abort(new Error(reason));
      }
      return { kind: "silent", reason };
    }
  }

  #setConnected(isConnected: boolean): void {
    this.#connected.set({ source: "api", kind: "all" }, Number(isConnected));
  }
}
