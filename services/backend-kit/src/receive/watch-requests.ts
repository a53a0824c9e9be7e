import { create } from "@bufbuild/protobuf";
import { type Ack, type ApplyFailure, Feature, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncMark } from "@kpng/model/wire/decode-local.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { WatchOptions } from "./watch-options.ts";

/**
 * Maximum number of requested batches that have not arrived. With many, the next batch need not wait for a request;
 * with few, the watcher merges changes for a slow backend instead of sending each of them.
 */
export const maxOutstanding = 32;

/**
 * Minimum interval between two acknowledgements if the watcher does not name one, in milliseconds. The next
 * acknowledgement covers everything that was applied in between.
 */
const defaultAckIntervalMs = 100;

/**
 * Maximum random extension of the interval, as a fraction of it. All nodes apply the same change at the same time, and
 * their acknowledgements should not arrive together.
 */
const ackJitter = 0.5;

/**
 * Time after which the receipt of a batch is confirmed by a request of its own, in milliseconds. Usually the
 * acknowledgement of the batch confirms it earlier. Longer if the interval between acknowledgements is longer.
 */
const minConfirmDelayMs = 1_000;

const allFeatures: readonly Feature[] = [Feature.Extended, Feature.NodeItem, Feature.Batches];

/**
 * The sending half of one stream to the watcher: requests for batches, and acknowledgements of applied ones.
 * `watchBatches` creates one for each stream, calls `next` and `received` around each batch, and sends what
 * `send` yields. Separate from it, the receiving half, because messages are due at times of their own.
 */
export class WatchRequests {
  readonly #request: WatchReq;
  /** Sent in the first request only. */
  #heldDigests: Uint8Array | undefined;
  /** Sent in the first request only. */
  #lastFailure: ApplyFailure | undefined;
  readonly #acks: WatchOptions["acks"];
  readonly #wakeup = new Wakeup();
  #isWanted = false;
  /** Number of batches that were requested and have not arrived. */
  #outstanding = 0;
  /** Sync marker of the last batch; undefined before the first. */
  #mark: SyncMark | undefined;
  /** Receipt of the oldest batch that is not confirmed to the watcher; undefined if all are. */
  #unconfirmedSinceMs: number | undefined;
  #nextAckMs = Number.NEGATIVE_INFINITY;

  constructor({ nodeName, serviceProxyName = "", features = allFeatures, held, acks, program }: WatchOptions) {
    this.#heldDigests = held?.digests;
    this.#lastFailure = acks?.lastFailure();
    this.#acks = acks;
    acks?.resend();
    acks?.onUpdate(() => this.#wakeup.wake());
    this.#request = create(WatchReqSchema, {
      NodeName: nodeName,
      ServiceProxyName: serviceProxyName,
      Features: [...features],
      ...(program === undefined ? {} : { Subscriber: { Name: program.name, Version: program.version } }),
    });
  }

  /** Requests another batch, because the backend is ready for one. */
  next(): void {
    this.#isWanted = true;
    this.#wakeup.wake();
  }

  /** Records that a complete batch has arrived. */
  received(mark: SyncMark): void {
    this.#isWanted = false;
    this.#mark = mark;
    // A watcher without counts answers each request with one batch.
    this.#outstanding = mark.takesCounts ? Math.max(0, this.#outstanding - 1) : 0;
    if (mark.takesCounts) this.#unconfirmedSinceMs ??= performance.now();
    this.#wakeup.wake();
  }

  /** Yields the messages of the stream when they are due, until `signal` aborts. */
  async *send(signal: AbortSignal): AsyncGenerator<WatchReq, void, void> {
    while (!signal.aborted) {
      const nowMs = performance.now();
      const ackDelayMs = this.#nextAckMs - nowMs;
      const ack = ackDelayMs > 0 || !this.#mark?.takesAcks ? undefined : this.#acks?.takeUnsent(this.#mark.instance);
      if (ack !== undefined) {
        this.#nextAckMs = nowMs + this.#ackIntervalMs * (1 + ackJitter * Math.random());
        if (this.#coversLastBatch(ack)) this.#unconfirmedSinceMs = undefined;
        yield create(WatchReqSchema, { Ack: ack });
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

  /** Minimum interval between two acknowledgements, in milliseconds. */
  get #ackIntervalMs(): number {
    return this.#mark?.ackIntervalMs || defaultAckIntervalMs;
  }

  /** Time at which a request confirms the receipt of the last batch; in the past if it is confirmed. */
  #confirmAtMs(): number {
    if (this.#unconfirmedSinceMs === undefined) return Number.NEGATIVE_INFINITY;
    return this.#unconfirmedSinceMs + Math.max(minConfirmDelayMs, 2 * this.#ackIntervalMs);
  }

  #isRequestDue(nowMs: number): boolean {
    if (this.#unconfirmedSinceMs !== undefined && nowMs >= this.#confirmAtMs()) return true;
    return this.#isWanted && this.#outstanding <= (this.#mark?.takesCounts ? maxOutstanding / 2 : 0);
  }

  #nextRequest(): WatchReq {
    const isCounted = this.#mark === undefined || this.#mark.takesCounts;
    const count = isCounted ? maxOutstanding - this.#outstanding : 1;
    const [held, LastFailure] = [this.#heldDigests, this.#lastFailure];
    this.#outstanding += count;
    this.#unconfirmedSinceMs = undefined;
    this.#heldDigests = undefined;
    this.#lastFailure = undefined;
    return {
      ...this.#request,
      ...(held === undefined ? {} : { HeldDigests: held }),
      ...(LastFailure === undefined ? {} : { LastFailure }),
      ...(isCounted ? { Count: count, Received: this.#mark?.revision ?? 0n } : {}),
    };
  }

  /** Waits for a change of this object, or for the shortest of the positive delays. */
  async #wait(delaysMs: readonly number[], signal: AbortSignal): Promise<void> {
    const delayMs = Math.min(...delaysMs.filter((ms) => ms > 0));
    const timer = Number.isFinite(delayMs) ? setTimeout(() => this.#wakeup.wake(), delayMs) : undefined;
    await this.#wakeup.wait(signal);
    clearTimeout(timer);
  }
}
