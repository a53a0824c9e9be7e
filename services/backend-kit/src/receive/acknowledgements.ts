import { create } from "@bufbuild/protobuf";
import {
  type Ack,
  AckSchema,
  AckTimingsSchema,
  type ApplyFailure,
  ApplyFailureSchema,
  EarlierAckSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncObserver, SyncTimes, SyncUpdate, ViewUpdate } from "../types/sync-update.ts";

/** Result of the last attempt to apply a batch. */
interface SyncResult {
  /** Run of the watcher that the revisions belong to. */
  readonly instance: string;
  /** Newest applied revision; 0 for none yet. */
  readonly applied: bigint;
  /** Revision that could not be applied; 0 if the last attempt succeeded. */
  readonly failed: bigint;
  readonly error: string;
  readonly times: SyncTimes | undefined;
  /** End of the attempt, in milliseconds of the monotonic clock. */
  readonly atMs: number;
}

/** Maximum number of earlier revisions in one acknowledgement; see `Ack.Earlier`. */
const maxEarlier = 32;

/** Maximum length of an error in an acknowledgement, in characters. */
const maxErrorLength = 1_000;

/**
 * Results of syncs that the watcher has not been told yet. It outlives streams, so that a result is not lost with a
 * connection. `WatchRequests` decides when they are sent, and belongs to one stream.
 *
 * *Bound:* the newest result, and the times of the newest 32 unsent ones before it.
 */
export class Acknowledgements implements SyncObserver {
  #state: SyncResult | undefined;
  #earlier: Pick<SyncResult, "applied" | "atMs">[] = [];
  #isUnsent = false;
  #listener: () => void = () => undefined;

  succeeded(update: SyncUpdate, times: SyncTimes): void {
    this.#set({ instance: update.instance, applied: update.revision, failed: 0n, error: "", times });
  }

  /** The update changes nothing, so it counts as applied. */
  settled(update: ViewUpdate): void {
    this.#set({ instance: update.instance, applied: update.revision, failed: 0n, error: "", times: undefined });
  }

  failed(update: SyncUpdate, reason: string, times: SyncTimes): void {
    const { instance, revision } = update;
    const applied = this.#state?.instance === instance ? this.#state.applied : 0n;
    this.#set({ instance, applied, failed: revision, error: reason.slice(0, maxErrorLength), times });
  }

  /** For the stream: calls `listener` after each new result. */
  onUpdate(listener: () => void): void {
    this.#listener = listener;
  }

  /**
   * For the stream: returns the results that this run of the watcher has not been sent; undefined if there are none.
   */
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
   * For the first request of a stream: the failure of the last attempt, whichever watcher its revision came from;
   * undefined if the attempt succeeded. So a restarted watcher shows a failing node at once.
   */
  lastFailure(): ApplyFailure | undefined {
    const state = this.#state;
    if (state === undefined || state.failed === 0n) return undefined;
    const AgeMicros = micros(performance.now() - state.atMs);
    return create(ApplyFailureSchema, { Error: state.error, AgeMicros });
  }

  /**
   * For a new stream: marks the newest result as unsent. It is sent if the stream is from the same run of the watcher.
   */
  resend(): void {
    // The watcher measures each revision on the stream that carried it, and that stream is gone.
    this.#earlier = [];
    this.#isUnsent = this.#state !== undefined;
  }

  #set(state: Omit<SyncResult, "atMs">): void {
    // A view from disk or from a Go watcher has no revision to acknowledge.
    if (state.instance === "") return;
    const before = this.#state;
    if (before?.instance !== state.instance) this.#earlier = [];
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
