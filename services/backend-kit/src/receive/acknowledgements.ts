import { create } from "@bufbuild/protobuf";
import { type Ack, AckSchema, AckTimingsSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ViewUpdate } from "../state/view-state.ts";
import type { SyncObserver, SyncTimes, SyncUpdate } from "../sync/sync-update.ts";

interface Applied {
  /** Which run of the watcher counts the revisions. */
  readonly instance: string;
  /** 0 for none yet. */
  readonly applied: bigint;
  /** 0 if the last attempt succeeded. */
  readonly failed: bigint;
  readonly error: string;
  readonly times: SyncTimes | undefined;
}

/** Most characters of an error that are told. */
const maxErrorLength = 1_000;

/**
 * What this backend has applied, for the watcher to know: a sync loop tells it, a stream sends it.
 *
 * *Bound:* the newest state alone; what is not sent before the next one is never sent.
 */
export class Acknowledgements implements SyncObserver {
  #state: Applied | undefined;
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
    const { applied, failed, error, times } = state;
    const ack = create(AckSchema, { Applied: applied, Failed: failed, Error: error });
    return times === undefined ? ack : { ...ack, Timings: encodeTimes(times) };
  }

  /** For a new stream: all of it is news again, if it is of the run that the stream is from. */
  repeat(): void {
    this.#isNews = this.#state !== undefined;
  }

  #set(state: Applied): void {
    // A view from disk, or from a Go watcher: nobody counts these revisions.
    if (state.instance === "") return;
    this.#state = state;
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
