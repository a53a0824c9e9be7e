import { create } from "@bufbuild/protobuf";
import { type Ack, Feature, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncMark } from "@kpng/model/wire/decode-local.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { WatchOptions } from "./watch-options.ts";

/**
 * Batches that are asked for ahead: so many that the next one need not wait for a request, and so few that a reader who
 * is slow gets what changed meanwhile merged.
 */
export const maxAhead = 32;

/**
 * Shortest time between two acknowledgements, in milliseconds, to a watcher that names none; what is applied meanwhile
 * is told with the next one.
 */
const standardAckIntervalMs = 100;

/** By how much one node's interval may differ from another's, of its length: they applied the same change at once. */
const ackJitter = 0.5;

/**
 * How long the watcher may not know that a batch was received, because it is not applied yet, in milliseconds; longer
 * where acknowledgements wait for longer.
 */
const minUntoldMs = 1_000;

const allFeatures: readonly Feature[] = [Feature.Extended, Feature.NodeItem, Feature.Batches];

/** What a stream sends: requests as batches are wanted, and acknowledgements between them. */
export class Requests {
  readonly #request: WatchReq;
  /** For the first request alone. */
  #heldDigests: Uint8Array | undefined;
  readonly #acks: WatchOptions["acks"];
  readonly #wakeup = new Wakeup();
  #isWanted = false;
  /** Batches that were asked for and have not come. */
  #ahead = 0;
  /** Of the last batch; undefined before the first. */
  #mark: SyncMark | undefined;
  /** Since when the watcher has not been told that the last batch was received; undefined if it has. */
  #untoldSinceMs: number | undefined;
  #nextAckMs = Number.NEGATIVE_INFINITY;

  constructor({ nodeName, serviceProxyName = "", features = allFeatures, held, acks, program }: WatchOptions) {
    this.#heldDigests = held?.digests;
    this.#acks = acks;
    acks?.repeat();
    acks?.onNews(() => this.#wakeup.wake());
    this.#request = create(WatchReqSchema, {
      NodeName: nodeName,
      ServiceProxyName: serviceProxyName,
      Features: [...features],
      ...(program === undefined ? {} : { Subscriber: { Name: program.name, Version: program.version } }),
    });
  }

  /** The reader wants another batch. */
  next(): void {
    this.#isWanted = true;
    this.#wakeup.wake();
  }

  /** A batch has come whole. */
  received(mark: SyncMark): void {
    this.#isWanted = false;
    this.#mark = mark;
    // Without counts, each request was for one.
    this.#ahead = mark.takesCounts ? Math.max(0, this.#ahead - 1) : 0;
    if (mark.takesCounts) this.#untoldSinceMs ??= performance.now();
    this.#wakeup.wake();
  }

  async *send(signal: AbortSignal): AsyncGenerator<WatchReq, void, void> {
    while (!signal.aborted) {
      const nowMs = performance.now();
      const ackDelayMs = this.#nextAckMs - nowMs;
      const ack = ackDelayMs > 0 || !this.#mark?.takesAcks ? undefined : this.#acks?.take(this.#mark.instance);
      if (ack !== undefined) {
        this.#nextAckMs = nowMs + this.#ackIntervalMs * (1 + ackJitter * Math.random());
        if (this.#tellsOfLast(ack)) this.#untoldSinceMs = undefined;
        yield create(WatchReqSchema, { Ack: ack });
      } else if (this.#isDue(nowMs)) {
        yield this.#ask();
      } else {
        await this.#wait([ackDelayMs, this.#tellAtMs() - nowMs], signal);
      }
    }
  }

  #tellsOfLast({ Applied, Failed }: Ack): boolean {
    const revision = this.#mark?.revision ?? 0n;
    return Applied >= revision || Failed >= revision;
  }

  /** At least, in milliseconds. */
  get #ackIntervalMs(): number {
    return this.#mark?.ackIntervalMs || standardAckIntervalMs;
  }

  /** When the watcher is told of the receipt if it has not heard before; in the past for never. */
  #tellAtMs(): number {
    if (this.#untoldSinceMs === undefined) return Number.NEGATIVE_INFINITY;
    return this.#untoldSinceMs + Math.max(minUntoldMs, 2 * this.#ackIntervalMs);
  }

  #isDue(nowMs: number): boolean {
    if (this.#untoldSinceMs !== undefined && nowMs >= this.#tellAtMs()) return true;
    return this.#isWanted && this.#ahead <= (this.#mark?.takesCounts ? maxAhead / 2 : 0);
  }

  #ask(): WatchReq {
    const isCounted = this.#mark === undefined || this.#mark.takesCounts;
    const count = isCounted ? maxAhead - this.#ahead : 1;
    const held = this.#heldDigests;
    this.#ahead += count;
    this.#untoldSinceMs = undefined;
    this.#heldDigests = undefined;
    return {
      ...this.#request,
      ...(held === undefined ? {} : { HeldDigests: held }),
      ...(isCounted ? { Count: count, Received: this.#mark?.revision ?? 0n } : {}),
    };
  }

  /** Until something is to be sent, or one of these times has passed; those that are not positive do not count. */
  async #wait(delaysMs: readonly number[], signal: AbortSignal): Promise<void> {
    const delayMs = Math.min(...delaysMs.filter((ms) => ms > 0));
    const timer = Number.isFinite(delayMs) ? setTimeout(() => this.#wakeup.wake(), delayMs) : undefined;
    await this.#wakeup.wait(signal);
    clearTimeout(timer);
  }
}
