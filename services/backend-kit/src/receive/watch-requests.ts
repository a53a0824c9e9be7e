import { create } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import type { ForwardGate } from "@kpng/model/forward.ts";
import {
  type Ack,
  AckSchema,
  AckTimingsSchema,
  type ApplyFailure,
  ApplyFailureSchema,
  EarlierAckSchema,
  Feature,
  type WatchReq,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncMark } from "@kpng/model/wire/local-message.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { SyncObserver, SyncTimes, SyncUpdate, ViewUpdate } from "../types/sync-update.ts";

/** Options of `watchView`, which opens one stream, and of `followView`, which opens one after another. */
export interface WatchOptions {
  /** Connection to the watcher, in this process or elsewhere. */
  readonly transport: Transport;
  /** At most 253 characters. A node that the cluster does not know is allowed. */
  readonly nodeName: string;
  /** Value of the label `service.kubernetes.io/service-proxy-name`; undefined or "" for the watcher's default. */
  readonly serviceProxyName?: string | undefined;
  /** Maximum size of a message after decompression, in bytes. Default and maximum 64 MiB. */
  readonly maxMessageBytes?: number | undefined;
  /**
   * Maximum memory that the view and each batch may take, in bytes, as estimated by `estimateOpBytes`. A larger batch
   * or view ends the stream. Default: no limit; for `backendTask`, a third of the memory limit.
   */
  readonly maxViewBytes?: number | undefined;
  /** Lets a state through only if it is not older than the states from earlier streams. Default: lets all through. */
  readonly gate?: ForwardGate | undefined;
  /** Sync results, sent to a watcher that accepts acknowledgements. */
  readonly acks?: Acknowledgements | undefined;
  /** Name and version of this program, shown in the watcher's list of subscribers. */
  readonly program?: { readonly name: string; readonly version: string } | undefined;
  /**
   * True if this program is not the node's proxy but only reads its view; the watcher then lists it among the node's
   * observers. Default false.
   */
  readonly isObserver?: boolean | undefined;
}

/**
 * Maximum number of requested batches that have not arrived. A high number means that the next batch need not wait for
 * a request; a low number means that the watcher merges changes for a slow backend instead of sending each one.
 */
export const maxOutstanding = 32;

/** Minimum interval between two acknowledgements if the watcher does not name one, in milliseconds. */
const defaultAckIntervalMs = 100;

/** Maximum random extension of the interval, as a fraction: all nodes apply a change at the same time. */
const ackJitter = 0.5;

/** Time after which a request of its own confirms a batch that no acknowledgement has confirmed, in milliseconds. */
const minConfirmDelayMs = 1_000;

/** The sending half of one stream to the watcher. */
export class WatchRequests {
  readonly #request: WatchReq;
  /** Fields of the first request only. */
  #firstFields: Partial<Pick<WatchReq, "HeldDigests" | "LastFailure">>;
  readonly #acks: WatchOptions["acks"];
  readonly #wakeup = new Wakeup();
  #isRequested = false;
  #outstanding = 0;
  /** Sync marker of the last batch; undefined before the first batch. */
  #mark: SyncMark | undefined;
  /** Time at which the oldest unconfirmed batch was received; undefined if all are confirmed to the watcher. */
  #unconfirmedSinceMs: number | undefined;
  #nextAckMs = Number.NEGATIVE_INFINITY;
  #hasAcknowledged = false;

  /** `HeldDigests` are those of the view that earlier streams brought; undefined to ask for the whole view. */
  constructor(options: Omit<WatchOptions, "transport">, HeldDigests?: Uint8Array) {
    const { nodeName, serviceProxyName = "", acks, program, isObserver: Observes = false } = options;
    const LastFailure = acks?.lastFailure();
    this.#acks = acks;
    acks?.resend(() => this.#wakeup.wake());
    this.#request = create(WatchReqSchema, {
      NodeName: nodeName,
      ServiceProxyName: serviceProxyName,
      Features: [Feature.Extended, Feature.NodeItem, Feature.Batches],
      ...(program === undefined ? {} : { Subscriber: { Name: program.name, Version: program.version, Observes } }),
    });
    this.#firstFields = {
      ...(HeldDigests === undefined ? {} : { HeldDigests }),
      ...(LastFailure === undefined ? {} : { LastFailure }),
    };
  }

  /** To be called when the backend is ready for another batch. */
  next(): void {
    this.#isRequested = true;
    this.#wakeup.wake();
  }

  received(mark: SyncMark): void {
    this.#isRequested = false;
    this.#mark = mark;
    // A watcher without counts answers each request with one batch.
    this.#outstanding = mark.takesCounts ? Math.max(0, this.#outstanding - 1) : 0;
    if (mark.takesCounts) this.#unconfirmedSinceMs ??= performance.now();
    this.#wakeup.wake();
  }

  /** Yields the stream's messages when they are due, until `signal` aborts. */
  async *send(signal: AbortSignal): AsyncGenerator<WatchReq, void, void> {
    while (!signal.aborted) {
      const nowMs = performance.now();
      const ackDelayMs = this.#nextAckMs - nowMs;
      const ack = ackDelayMs > 0 || !this.#mark?.takesAcks ? undefined : this.#acks?.takeUnsent(this.#mark.instance);
      if (ack !== undefined) {
        this.#nextAckMs = nowMs + this.#ackIntervalMs * (1 + ackJitter * Math.random());
        if (this.#coversLastBatch(ack)) this.#unconfirmedSinceMs = undefined;
        this.#hasAcknowledged = true;
        yield create(WatchReqSchema, { Ack: ack });
      } else if (this.#isFirstAckLate(nowMs)) {
        this.#hasAcknowledged = true;
        yield create(WatchReqSchema, { Ack: {} });
      } else if (this.#isRequestDue(nowMs)) {
        yield this.#nextRequest();
      } else {
        await this.#wait([ackDelayMs, this.#confirmAtMs() - nowMs], signal);
      }
    }
  }

  #coversLastBatch({ Applied, Failed }: Ack): boolean {
    const revision = this.#mark?.revision ?? 0n;
    return Applied >= revision || Failed >= revision;
  }

  get #ackIntervalMs(): number {
    return this.#mark?.ackIntervalMs || defaultAckIntervalMs;
  }

  /** Returns the time at which a request will confirm the last batch; in the past if the batch is already confirmed. */
  #confirmAtMs(): number {
    if (this.#unconfirmedSinceMs === undefined) return Number.NEGATIVE_INFINITY;
    return this.#unconfirmedSinceMs + Math.max(minConfirmDelayMs, 2 * this.#ackIntervalMs);
  }

  /**
   * True if the first batch of the stream is not applied yet when its receipt is to be confirmed. The watcher then needs
   * an acknowledgement of revision 0: it would take a confirmation alone for that of a client that never acknowledges,
   * and show a backend whose first sync hangs as one that has everything. A failure that the first request named
   * stands until the next attempt.
   */
  #isFirstAckLate(nowMs: number): boolean {
    if (this.#hasAcknowledged || this.#acks === undefined || !this.#mark?.takesAcks) return false;
    return this.#unconfirmedSinceMs !== undefined && nowMs >= this.#confirmAtMs() && !this.#acks.lastFailure();
  }

  #isRequestDue(nowMs: number): boolean {
    if (this.#unconfirmedSinceMs !== undefined && nowMs >= this.#confirmAtMs()) return true;
    // Refill at half: one request per batch would cost the watcher as much as writing a change.
    return this.#isRequested && this.#outstanding <= (this.#mark?.takesCounts ? maxOutstanding / 2 : 0);
  }

  #nextRequest(): WatchReq {
    // Until the first marker, it is unknown whether the watcher knows counts; an older one ignores them.
    const isCounted = this.#mark === undefined || this.#mark.takesCounts;
    const count = isCounted ? maxOutstanding - this.#outstanding : 1;
    const counts = isCounted ? { Count: count, Received: this.#mark?.revision ?? 0n } : {};
    const request = { ...this.#request, ...this.#firstFields, ...counts };
    this.#firstFields = {};
    this.#outstanding += count;
    this.#unconfirmedSinceMs = undefined;
    return request;
  }

  /** Waits until this object changes or the shortest of the positive delays has passed. */
  async #wait(delaysMs: readonly number[], signal: AbortSignal): Promise<void> {
    const delayMs = Math.min(...delaysMs.filter((ms) => ms > 0));
    const timer = Number.isFinite(delayMs) ? setTimeout(() => this.#wakeup.wake(), delayMs) : undefined;
    await this.#wakeup.wait(signal);
    clearTimeout(timer);
  }
}

interface SyncResult {
  /** Watcher run to which the revisions belong. */
  readonly instance: string;
  /** Newest applied revision; 0 if none has been applied yet. */
  readonly applied: bigint;
  /** Revision that could not be applied; 0 if the last attempt succeeded. */
  readonly failed: bigint;
  readonly error: string;
  readonly times: SyncTimes | undefined;
  /** Time at which the attempt ended, in milliseconds of the monotonic clock. */
  readonly atMs: number;
}

/** Maximum number of earlier revisions in one acknowledgement; see `Ack.Earlier`. */
const maxEarlier = 32;

const maxErrorLength = 1_000;

/**
 * Sync results that have not been sent to the watcher yet. This object outlives streams, so that no result is lost with
 * a connection; `WatchRequests`, which belongs to one stream, decides when the results are sent.
 *
 * *Bound:* the newest result, and the times of up to 32 earlier unsent results.
 */
export class Acknowledgements implements SyncObserver {
  /** The newest result. */
  #state: SyncResult | undefined;
  /** Earlier successes that have not been sent. */
  #earlier: Pick<SyncResult, "applied" | "atMs">[] = [];
  #isUnsent = false;
  #listener: () => void = () => undefined;

  succeeded(update: Pick<SyncUpdate, "instance" | "revision">, times: SyncTimes): void {
    this.#set({ instance: update.instance, applied: update.revision, failed: 0n, error: "", times });
  }

  settled(update: ViewUpdate): void {
    this.#set({ instance: update.instance, applied: update.revision, failed: 0n, error: "", times: undefined });
  }

  failed(update: SyncUpdate, reason: string, times: SyncTimes): void {
    const { instance, revision } = update;
    const applied = this.#state?.instance === instance ? this.#state.applied : 0n;
    this.#set({ instance, applied, failed: revision, error: reason.slice(0, maxErrorLength), times });
  }

  /** Returns the results that have not been sent to this watcher run; undefined if there are none. */
  takeUnsent(instance: string): Ack | undefined {
    const state = this.#state;
    if (state === undefined || !this.#isUnsent || state.instance !== instance) return undefined;
    this.#isUnsent = false;
    const { applied, failed, error, times, atMs } = state;
    const nowMs = performance.now();
    const Earlier = this.#earlier.map((one) =>
      create(EarlierAckSchema, { Applied: one.applied, AgeMicros: micros(nowMs - one.atMs) }),
    );
    this.#earlier = [];
    const AgeMicros = micros(nowMs - atMs);
    const ack = create(AckSchema, { Applied: applied, Failed: failed, Error: error, AgeMicros, Earlier });
    return times === undefined ? ack : { ...ack, Timings: encodeTimes(times) };
  }

  /**
   * For the first request of a stream: returns the failure of the last attempt, no matter which watcher its revision
   * came from, so that a restarted watcher shows a failing node immediately.
   */
  lastFailure(): ApplyFailure | undefined {
    const state = this.#state;
    if (state === undefined || state.failed === 0n) return undefined;
    const AgeMicros = micros(performance.now() - state.atMs);
    return create(ApplyFailureSchema, { Error: state.error, AgeMicros });
  }

  /**
   * For a new stream: marks the newest result as unsent, so that it is sent if the stream belongs to the same watcher
   * run, and replaces the listener, which is called after each new result.
   */
  resend(listener: () => void): void {
    this.#listener = listener;
    // The watcher measures each revision on the stream that carried it, and that stream is gone.
    this.#earlier = [];
    this.#isUnsent = this.#state !== undefined;
  }

  #set(state: Omit<SyncResult, "atMs">): void {
    // A view from disk or from a Go watcher has no revision to acknowledge.
    if (state.instance === "") return;
    const before = this.#state;
    if (before?.instance !== state.instance) this.#earlier = [];
    // `Ack.Earlier` holds applied revisions only.
    else if (this.#isUnsent && before.applied > 0n && before.failed === 0n) this.#earlier.push(before);
    if (this.#earlier.length > maxEarlier) this.#earlier.shift();
    this.#state = { ...state, atMs: performance.now() };
    this.#isUnsent = true;
    this.#listener();
  }
}

function encodeTimes({ receivedAtMs, startedAtMs, renderedAtMs, endedAtMs }: SyncTimes) {
  return create(AckTimingsSchema, {
    WaitMicros: micros(startedAtMs - receivedAtMs),
    RenderMicros: micros(renderedAtMs - startedAtMs),
    CommitMicros: micros(endedAtMs - renderedAtMs),
  });
}

function micros(ms: number): bigint {
  return BigInt(Math.max(0, Math.round(ms * 1_000)));
}
