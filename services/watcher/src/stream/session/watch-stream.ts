import { ConnectError } from "@connectrpc/connect";
import { type Frame, resetFrame } from "../../items/frames.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { type Changes, noChanges, type Projection, pause } from "../delta/projection.ts";
import { type Batch, syncMarker } from "./marker.ts";
import type { Rounds } from "./rounds.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Subscriber, Subscribers } from "./subscribers.ts";

/**
 * One Watch call, from its first request to its end.
 *
 * A client sends requests. As soon as the view changes, the stream answers a request with a batch, which it writes to
 * the {@link WatchSink}. The stream does not depend on HTTP: calls and the store drive it from outside, and while it
 * waits, it is only an entry in a list. With thousands of streams, the memory per idle stream and the promises per
 * batch dominate the cost.
 *
 * ```text
 * client                      watcher
 * node n1, Extended      →    Reset, puts …, Sync 41 digest          whole view
 * 16 more batches        →    put, delete, Sync 42 digest            41 → 42, once its round begins
 * Ack applied 42         →
 *                             put, Sync 45 digest                    43 and 44 did not change this view
 * (connection lost)
 * node n1, HeldDigests   →    Keep, puts …, Sync 48 digest           only what the node lacks
 * ```
 *
 * 1. *First batch.* This is `Projection.whole` after Reset, or `resume` if the client sent digests of the view that it
 *    holds. Both are encoded while they are written, and other work runs in between; see `Scheduler`.
 * 2. *Batches.* While requested batches (credits) remain, the stream waits for the next round of `Rounds`, which wakes
 *    all settled streams with the same target snapshot. The batch is the difference from the snapshot that was last
 *    sent. A stream with pending writes does not take part; its changes are merged until the sink has drained.
 * 3. *Marker.* Each batch ends with a sync marker, which makes the client apply the batch. `syncMarker` collects the
 *    marker's content; the digest in it lets the client check the view that it holds.
 * 4. *Acknowledgement.* Clients report which revisions they have received and applied. `Subscriber` records these
 *    reports, only for metrics, inspection and traces; the watcher never waits for them.
 * 5. *Another view.* After a request for another node, or a change of the node's zone, the stream begins again with
 *    Reset.
 * 6. *End.* The client disconnects, an error ends the stream, or the watcher asks it to leave after the current batch.
 *
 * *Bound:* one request for another view, and one frame.
 */
export class WatchStream<Request> {
  readonly #options: WatchStreamOptions<Request>;
  readonly #rounds: Rounds;
  readonly #scheduler: Scheduler;
  #state: State = "idle";
  /** False after a write that filled the sink, until the sink has drained. */
  #hasRoom = true;
  /** The request in progress, or the last one. */
  #batchRequest: BatchRequest | undefined;
  /** Number of requested batches that have not begun. */
  #credits = 0;
  /** A request for another view that has not begun. */
  #nextRequest: BatchRequest | undefined;
  /** True once the first batch has begun. */
  #hasBegun = false;
  #isFinished = false;
  /** The error with which the stream ends after the current batch. */
  #leaving: ConnectError | undefined;
  /** The projection of the last batch; undefined before the first batch. */
  #projection: Projection | undefined;
  /**
   * The last snapshot that the subscriber was sent, or that does not differ from it for this view. A stream that lags
   * keeps it in memory, but shares all objects that have not been replaced since.
   */
  #snapshot: Snapshot | undefined;
  #batch: Batch | undefined;
  #frames: Iterator<Frame> | undefined;
  /** The newest frame; if it turns out to be the last one, it is written together with the marker. */
  #lastFrame: Frame | undefined;
  #byteCount = 0;
  readonly #onRound = (): void => this.#await();
  readonly #onTurn = (): void => this.#advance();

  constructor(options: WatchStreamOptions<Request>) {
    this.#options = options;
    this.#rounds = options.subscribers.rounds;
    this.#scheduler = options.subscribers.scheduler;
  }

  /** True if the stream cannot take a request now; the stream calls the sink's `room` when it can. */
  get isFull(): boolean {
    return this.#nextRequest !== undefined || this.#credits >= maxCredits;
  }

  /** Takes a request. The stream must not be full. */
  take(request: Request): void {
    if (this.#state === "over") return;
    let batchRequest: BatchRequest | undefined;
    try {
      batchRequest = this.#options.read(request);
    } catch (error) {
      this.end(ConnectError.from(error));
      return;
    }
    if (batchRequest === undefined) return;
    this.#recordReceipt(batchRequest);
    if (this.#isSameView(batchRequest)) this.#credits += batchRequest.count;
    else this.#replace(batchRequest);
    this.#beginNext();
  }

  /** To be called after the last request. The stream ends when all requests have been answered. */
  finish(): void {
    this.#isFinished = true;
    this.#beginNext();
  }

  /** To be called when the sink can take more after {@link WatchSink.write} returned false. */
  drained(): void {
    this.#hasRoom = true;
    if (this.#state === "blocked") this.#continue();
    else this.#beginNext();
  }

  /** Ends the stream with an error, either after the current batch or immediately if there is none. */
  leave(error: ConnectError): void {
    if (this.#state === "writing" || this.#state === "blocked") this.#leaving ??= error;
    else this.end(error);
  }

  /** To be called when the client is gone; the sink is not called any more. */
  close(): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#rounds.cancelNext(this.#onRound);
    this.#release();
    this.#snapshot = undefined;
    this.#batchRequest = undefined;
    this.#nextRequest = undefined;
    this.#options.subscriber.close();
  }

  /** Ends the stream immediately, even in the middle of a batch. */
  end(error?: ConnectError): void {
    if (this.#state === "over") return;
    this.close();
    this.#options.sink.end(error);
  }

  /**
   * Records what a request confirms as received. Without `received`, a request confirms everything that was sent,
   * unless an earlier request is unanswered: it may then have been sent before the last batch arrived.
   */
  #recordReceipt({ received }: BatchRequest): void {
    const { subscriber } = this.#options;
    if (received !== undefined) subscriber.received(received);
    else if (this.#state === "idle") subscriber.received(subscriber.sentRevision);
  }

  #replace(batchRequest: BatchRequest): void {
    this.#nextRequest = batchRequest;
    if (this.#state !== "waiting") return;
    this.#rounds.cancelNext(this.#onRound);
    this.#state = "idle";
  }

  /** True if the request asks for more batches of the view in progress. */
  #isSameView({ projection }: BatchRequest): boolean {
    return this.#nextRequest === undefined && projection === this.#batchRequest?.projection;
  }

  /** Starts the next batch once the sink has drained; changes until then are merged into this batch. */
  #beginNext(): void {
    if (this.#state !== "idle") return;
    const nextRequest = this.#nextRequest;
    if (nextRequest === undefined && this.#credits === 0) {
      if (this.#isFinished) this.end();
      return;
    }
    if (!this.#hasRoom) return;
    if (nextRequest === undefined) {
      const wasFull = this.isFull;
      this.#credits -= 1;
      this.#await();
      if (wasFull && !this.isFull) this.#options.sink.room();
      return;
    }
    this.#nextRequest = undefined;
    this.#credits = nextRequest.count - 1;
    this.#beginView(nextRequest);
    this.#await();
    this.#options.sink.room();
  }

  /** Begins a view. Writes Reset immediately, unless the client resumes its view. */
  #beginView(batchRequest: BatchRequest): void {
    this.#batchRequest = this.#hasBegun ? { ...batchRequest, resume: undefined } : batchRequest;
    this.#hasBegun = true;
    if (this.#batchRequest.resume === undefined) this.#hasRoom = this.#options.sink.write(resetFrame);
  }

  /** Waits until the target snapshot is newer than the last one that was compared. */
  #await(): void {
    const { snapshot } = this.#rounds;
    const isNew = this.#batchRequest?.projection !== this.#projection;
    if (!snapshot.isSynced || (!isNew && snapshot.revision <= (this.#snapshot?.revision ?? 0))) {
      this.#state = "waiting";
      this.#rounds.callNext(this.#onRound);
      return;
    }
    this.#state = "due";
    this.#scheduler.schedule(isNew ? "begin" : "update", this.#onTurn);
  }

  #advance(): void {
    const batchRequest = this.#batchRequest;
    if (this.#state !== "due" || batchRequest === undefined) return;
    const { projection, resume = projection.whole } = batchRequest;
    const { snapshot } = this.#rounds;
    const before = projection === this.#projection ? this.#snapshot : undefined;
    try {
      const changes = before === undefined ? resume(snapshot) : projection.between(before, snapshot);
      this.#projection = projection;
      this.#snapshot = snapshot;
      // The first batch of a view is sent even if the view is empty, because the client waits for its marker.
      if (before !== undefined && changes === noChanges) {
        this.#options.subscriber.skipped(snapshot.revision);
        if (this.#nextRequest === undefined) {
          this.#await();
        } else {
          // Another view was requested while this view waited for its turn.
          this.#state = "idle";
          this.#beginNext();
        }
        return;
      }
      this.#batch = { snapshot, before };
      this.#state = "writing";
      this.#byteCount = 0;
      this.#frames = changes[Symbol.iterator]();
      this.#writeNext();
    } catch (error) {
      this.end(ConnectError.from(error));
    }
  }

  #continue(): void {
    this.#state = "writing";
    this.#scheduler.schedule(this.#batch?.before === undefined ? "continue" : "update", () => {
      if (this.#state !== "writing") return;
      try {
        this.#writeNext();
      } catch (error) {
        this.end(ConnectError.from(error));
      }
    });
  }

  /** Writes the next frames of the batch, up to {@link stepBytes} or a {@link pause}. */
  #writeNext(): void {
    const endBytes = this.#byteCount + stepBytes;
    while (this.#byteCount < endBytes) {
      const next = this.#frames?.next();
      if (next === undefined || next.done === true) {
        this.#writeLast();
        return;
      }
      if (next.value === pause) break;
      if (this.#lastFrame !== undefined) this.#write(this.#lastFrame);
      this.#lastFrame = next.value;
      if (!this.#hasRoom) break;
    }
    if (this.#hasRoom) this.#continue();
    else this.#state = "blocked";
  }

  #write(frame: Frame): void {
    this.#byteCount += frame.length;
    this.#hasRoom = this.#options.sink.write(frame);
  }

  /** Writes the last frame and the sync marker. */
  #writeLast(): void {
    const { subscribers, subscriber } = this.#options;
    const [batchRequest, batch, lastFrame] = [this.#batchRequest, this.#batch, this.#lastFrame];
    if (batchRequest === undefined || batch === undefined) return;
    const digest = batchRequest.isExtended ? batchRequest.projection.digest?.(batch.snapshot) : undefined;
    const { before, snapshot } = batch;
    const marker = syncMarker(batch, subscribers, batchRequest.isExtended);
    let last = digest === undefined ? marker.frame : marker.withDigest(digest);
    // A large frame is not copied, because many streams share it, and a copy would belong to only one of them.
    if (lastFrame !== undefined && lastFrame.length >= largeFrameBytes) this.#write(lastFrame);
    else if (lastFrame !== undefined) last = Buffer.concat([lastFrame, last]);
    const byteCount = this.#byteCount + last.length;
    // This must precede the write, because the acknowledgement may arrive before the write returns.
    subscriber.sent({ after: before?.revision ?? 0, revision: snapshot.revision, byteCount });
    this.#write(last);
    this.#release();
    // The digests of the subscriber are large and no longer needed.
    if (batchRequest.resume !== undefined) this.#batchRequest = { ...batchRequest, resume: undefined };
    if (this.#leaving !== undefined) {
      this.end(this.#leaving);
      return;
    }
    this.#state = "idle";
    this.#beginNext();
  }

  #release(): void {
    this.#batch = undefined;
    this.#frames = undefined;
    this.#lastFrame = undefined;
  }
}

export interface BatchRequest {
  /** The same object as in the previous request if both are for the same view; any other object begins a view. */
  readonly projection: Projection;
  /**
   * Computes the first batch, instead of Reset and the whole view, for a subscriber that sent digests. Ignored unless
   * this is the first request of the stream.
   */
  readonly resume?: ((snapshot: Snapshot) => Changes) | undefined;
  /** True if the sync marker has kpng's fields. */
  readonly isExtended: boolean;
  /** Number of batches requested, at least 1. */
  readonly count: number;
  /** Revision of the last batch that was received; undefined if the client received everything sent so far. */
  readonly received: number | undefined;
}

/** The output of a stream. No method is called after `end`. */
export interface WatchSink {
  /** Takes one or more whole frames. Returns false if the caller should wait for {@link WatchStream.drained}. */
  write(frames: Frame): boolean;
  /** Called when the stream can take a request again after it was full. */
  room(): void;
  /** Called when the stream is over. `error` is the reason, unless the client already knows it. */
  end(error?: ConnectError): void;
}

interface WatchStreamOptions<Request> {
  readonly subscribers: Subscribers;
  readonly subscriber: Subscriber;
  readonly sink: WatchSink;
  /** Decodes a request; returns undefined for a report, which requests no batch. Errors: ConnectError. */
  readonly read: (request: Request) => BatchRequest | undefined;
}

/** Maximum number of outstanding batches; beyond it, the stream takes no more requests. Our backends stop at 32. */
const maxCredits = 10_000;

/**
 * The state of a stream.
 *
 * | State | Meaning | Next |
 * |---|---|---|
 * | `idle` | no batch is requested, or the sink must drain before the next one | `waiting`, `due` |
 * | `waiting` | a batch is requested, and the snapshot has not changed | `due`; `idle` for another request |
 * | `due` | waits for its turn to compute a batch | `writing`; `waiting`, `due` or `idle` if the batch is empty |
 * | `writing` | writes a batch | `blocked`, `idle` |
 * | `blocked` | the sink is full in the middle of a batch | `writing` |
 * | `over` | closed or ended | |
 */
type State = "idle" | "waiting" | "due" | "writing" | "blocked" | "over";

/** Minimum size of a frame that is written separately, in bytes. */
const largeFrameBytes = 4 * 1024;

/** Number of bytes that a stream writes in one step; the scheduler then decides which work continues. */
const stepBytes = 16 * 1024;
