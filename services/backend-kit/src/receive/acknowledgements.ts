import { create } from "@bufbuild/protobuf";
import { type Ack, AckSchema, AckTimingsSchema, EarlierAckSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncObserver, SyncTimes, SyncUpdate } from "../types/sync-update.ts";
import type { ViewUpdate } from "../types/view-update.ts";

interface Applied {
  /** Which run of the watcher counts the revisions. */
  readonly instance: string;
  /** 0 for none yet. */
  readonly applied: bigint;
  /** 0 if the last attempt succeeded. */
  readonly failed: bigint;
  readonly error: string;
  readonly times: SyncTimes | undefined;
  /** When that ended, in milliseconds of the monotonic clock. */
  readonly atMs: number;
}

/** Most revisions that one acknowledgement tells of beside the newest. */
const maxEarlier = 32;

/** Most characters of an error that are told. */
const maxErrorLength = 1_000;

/**
 * What this backend has applied, for the watcher to know: a sync loop tells it, a stream sends it.
 *
 * *Bound:* the newest state, and of those before it that were not sent when each of the newest 32 was applied.
 */
export class Acknowledgements implements SyncObserver {
  #state: Applied | undefined;
  #earlier: Pick<Applied, "applied" | "atMs">[] = [];
  #isNews = false;
  #listener: () => void = () => undefined;

  succeeded(update: SyncUpdate, times: SyncTimes): void {
    this.#set({ instance: update.instance, applied: update.revision, failed: 0n, error: "", times });
  }

  /** What it brought is in force already. */
  settled(update: ViewUpdate): void {
    this.#set({ instance: update.instance, applied: update.revision, failed: 0n, error: "", times: undefined });
  }

  failed(update: SyncUpdate, reason: string, times: SyncTimes): void {
    const { instance, revision } = update;
    const applied = this.#state?.instance === instance ? this.#state.applied : 0n;
    this.#set({ instance, applied, failed: revision, error: reason.slice(0, maxErrorLength), times });
  }

  /** For the stream: calls `listener` whenever there is something new. */
  onNews(listener: () => void): void {
    this.#listener = listener;
  }

  /** For the stream: what that run of the watcher has not been told; undefined for nothing. */
  take(instance: string): Ack | undefined {
    const state = this.#state;
    if (state === undefined || !this.#isNews || state.instance !== instance) return undefined;
    this.#isNews = false;
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

  /** For a new stream: all of it is news again, if it is of the run that the stream is from. */
  repeat(): void {
    // When each was applied concerned the stream before.
    this.#earlier = [];
    this.#isNews = this.#state !== undefined;
  }

  #set(state: Omit<Applied, "atMs">): void {
    // A view from disk, or from a Go watcher: nobody counts these revisions.
    if (state.instance === "") return;
    const before = this.#state;
    if (before?.instance !== state.instance) this.#earlier = [];
    else if (this.#isNews && before.applied > 0n && before.failed === 0n) this.#earlier.push(before);
    if (this.#earlier.length > maxEarlier) this.#earlier.shift();
    this.#state = { ...state, atMs: performance.now() };
    this.#isNews = true;
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
