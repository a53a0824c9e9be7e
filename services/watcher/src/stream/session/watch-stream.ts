import { ConnectError } from "@connectrpc/connect";
import { Rate } from "../../connection/limits.ts";
import { type Frame, resetFrame } from "../../items/frames.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { type Changes, type Projection, pause } from "../delta/projection.ts";
import { syncMarker } from "./marker.ts";
import { type Rounds, roundsOf } from "./rounds.ts";
import { scheduler } from "./scheduler.ts";
import type { StartTicket } from "./start-limits.ts";
import type { Batch, Subscriber } from "./subscribers.ts";

/**
 * One Watch call, from its first request to its end.
 *
 * A client sends requests; the stream answers each with a batch as soon as the view changes, and writes it to the
 * {@link WatchSink}. It knows no HTTP: calls and the store drive it from outside, and while it waits, it is only an entry
 * in a list. With thousands of streams, memory per idle stream and promises per batch dominate the cost.
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
 * 1. *First batch.* `Projection.whole` after Reset, or `resume` if the client sent digests of what it holds. Both are
 *    encoded while they are written, and other work runs in between; see `Scheduler`.
 * 2. *Batches.* While requested batches (credits) remain, the stream waits for the next round of `Rounds`, which wakes
 *    all settled streams with the same target snapshot. `Subscription` computes the difference to the snapshot that was
 *    sent. A stream with pending writes does not take part: changes until the sink has drained are merged.
 * 3. *Marker.* Each batch ends with a sync marker, which makes the client apply it: `syncMarker` collects what it
 *    says; the digest of the view lets the client check what it holds.
 * 4. *Acknowledgement.* Clients report what they have received and applied; `Subscriber` records it, for metrics,
 *    inspection and traces only. The watcher never waits for it.
 * 5. *End.* The client disconnects, an error ends the stream, or the watcher asks it to leave after the current batch.
 *
 * *Bound:* one request for another view, and the frames in the {@link FrameJoiner}.
 */
export class WatchStream<Request> {
  readonly #options: WatchStreamOptions<Request>;
  readonly #rounds: Rounds;
  readonly #joiner: FrameJoiner;
  readonly #requests: RequestLimit;
  /** The last request that was read. */
  #last: Wanted | undefined;
  #state: State = "idle";
  /** False from a write that filled the sink until the sink has drained. */
  #hasRoom = true;
  /** The request in progress, or the last one. */
  #wanted: Wanted | undefined;
  /** Batches that are requested and not started. */
  #credits = 0;
  /** A request for another view that is not started. */
  #ahead: Wanted | undefined;
  #isFirst = true;
  /** Reset was written. */
  #isReset = false;
  /** The first batch was computed. */
  #hasBegun = false;
  #ticket: StartTicket | undefined;
  /** True if no more requests will come. */
  #isFinished = false;
  /** The error with which the stream ends after the current batch. */
  #leaving: ConnectError | undefined;
  #batch: Batch | undefined;
  #frames: Iterator<Frame> | undefined;
  readonly #onStored = (): void => this.#await();
  readonly #onTurn = (): void => this.#advance();

  constructor(options: WatchStreamOptions<Request>) {
    this.#options = options;
    this.#rounds = roundsOf(options.store);
    this.#joiner = new FrameJoiner((frames) => {
      this.#hasRoom = options.sink.write(frames);
      this.#ticket?.wrote();
    });
    this.#requests = new RequestLimit(() => {
      if (!this.isFull) options.sink.room();
    });
  }

  /** True if the stream can take no request now; the sink's `room` reports when it can. */
  get isFull(): boolean {
    return this.#ahead !== undefined || this.#credits >= maxCredits || this.#requests.isFull;
  }

  /** Takes a request. The stream must not be full. */
  take(request: Request): void {
    if (this.#state === "over") return;
    let wanted: Wanted | undefined;
    try {
      wanted = this.#options.read(request);
    } catch (error) {
      this.#end(ConnectError.from(error));
      return;
    }
    // KPNG's clients repeat the same request for each batch; it is read once.
    if (wanted === undefined || wanted !== this.#last) this.#requests.add();
    if (wanted === undefined) return;
    // Not with the digests of a subscriber that resumes: they are large.
    this.#last = wanted.resume === undefined ? wanted : undefined;
    this.#recordReceipt(wanted);
    if (this.#isSameView(wanted)) this.#credits += wanted.count;
    else this.#replace(wanted);
    this.#beginNext();
  }

  /** No more requests will come. The stream ends when the previous ones are answered. */
  finish(): void {
    this.#isFinished = true;
    this.#beginNext();
  }

  /** The sink has written everything. */
  drained(): void {
    this.#hasRoom = true;
    if (this.#state === "blocked") this.#continue();
    else this.#beginNext();
  }

  /** Ends the stream with an error: after the current batch, or now if there is none. */
  leave(error: ConnectError): void {
    if (this.#state === "writing" || this.#state === "blocked") this.#leaving ??= error;
    else this.#end(error);
  }

  /** Ends the stream with an error now. */
  abort(error: ConnectError): void {
    this.#end(error);
  }

  /** The client has disconnected. */
  close(): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#rounds.cancelNext(this.#onStored);
    this.#release();
    this.#wanted = undefined;
    this.#ahead = undefined;
    this.#last = undefined;
    this.#ticket?.close();
    this.#requests.close();
    this.#options.subscriber.close();
  }

  #end(error?: ConnectError): void {
    if (this.#state === "over") return;
    this.close();
    this.#options.sink.end(error);
  }

  /** A request without `received`, while no batch is in progress, confirms everything that was sent. */
  #recordReceipt({ received }: Wanted): void {
    const { subscriber } = this.#options;
    if (received !== undefined) subscriber.received(received);
    else if (this.#state === "idle") subscriber.received(subscriber.sentRevision);
  }

  /** Stops waiting for a change of the previous view. */
  #replace(wanted: Wanted): void {
    this.#ahead = wanted;
    if (this.#state !== "waiting") return;
    this.#rounds.cancelNext(this.#onStored);
    this.#state = "idle";
  }

  /** True if the request asks for more batches of the view in progress. */
  #isSameView({ projection, resume }: Wanted): boolean {
    return this.#ahead === undefined && resume === undefined && projection === this.#wanted?.projection;
  }

  /** Starts the next batch once the sink has drained: changes until then are merged into it. */
  #beginNext(): void {
    if (this.#state !== "idle") return;
    const ahead = this.#ahead;
    if (ahead === undefined && this.#credits === 0) {
      if (this.#isFinished) this.#end();
      return;
    }
    if (!this.#hasRoom) return;
    if (ahead === undefined) {
      const wasFull = this.isFull;
      this.#credits -= 1;
      this.#await();
      if (wasFull && !this.isFull) this.#options.sink.room();
      return;
    }
    this.#ahead = undefined;
    this.#credits = ahead.count - 1;
    if (this.#isFirst && !this.#enter(ahead)) return;
    this.#wanted = this.#hasBegun ? ahead : this.#open(ahead);
    this.#await();
    this.#options.sink.room();
  }

  /** False if too many streams wait for their first batch. */
  #enter(wanted: Wanted): boolean {
    this.#isFirst = false;
    try {
      this.#ticket = this.#options.enter(wanted);
    } catch (error) {
      this.#end(ConnectError.from(error));
      return false;
    }
    return true;
  }

  /** Writes Reset unless the subscriber resumes; only once, even if the request changes before the first batch. */
  #open(wanted: Wanted): Wanted {
    if (this.#isReset) return { ...wanted, resume: undefined };
    if (wanted.resume === undefined) {
      this.#isReset = true;
      this.#hasRoom = this.#options.sink.write(resetFrame);
    }
    return wanted;
  }

  /** Waits for a snapshot with which this subscriber was not compared. */
  #await(): void {
    const { subscriber } = this.#options;
    const { snapshot } = this.#rounds;
    const isNew = this.#wanted?.projection !== subscriber.subscription.projection;
    if (!snapshot.isSynced || (!isNew && snapshot.revision <= subscriber.subscription.revision)) {
      this.#state = "waiting";
      this.#rounds.callNext(this.#onStored);
      return;
    }
    this.#state = "due";
    scheduler.schedule(isNew ? "begin" : "update", this.#onTurn);
  }

  #advance(): void {
    const wanted = this.#wanted;
    if (this.#state !== "due" || wanted === undefined) return;
    const { subscription } = this.#options.subscriber;
    try {
      const batch = subscription.advance(wanted.projection, wanted.resume);
      if (batch.isUpdate && batch.changes.isEmpty) {
        if (this.#ahead === undefined) {
          this.#await();
        } else {
          // Another view was requested while this one waited for its turn.
          this.#state = "idle";
          this.#beginNext();
        }
        return;
      }
      this.#batch = batch;
      this.#hasBegun = true;
      this.#joiner.reset();
      this.#state = "writing";
      const { only } = batch.changes;
      if (only === undefined) {
        this.#frames = batch.changes.frames()[Symbol.iterator]();
        this.#writeNext();
      } else {
        this.#writeLast();
      }
    } catch (error) {
      this.#end(ConnectError.from(error));
    }
  }

  #continue(): void {
    this.#state = "writing";
    scheduler.schedule(this.#batch?.isUpdate === true ? "update" : "continue", () => {
      if (this.#state !== "writing") return;
      try {
        this.#writeNext();
      } catch (error) {
        this.#end(ConnectError.from(error));
      }
    });
  }

  /** Writes the next frames of the batch: joined small ones, or a large one. Writes nothing at a {@link pause}. */
  #writeNext(): void {
    let next = this.#frames?.next();
    while (next?.done === false && next.value !== pause && !this.#joiner.add(next.value)) next = this.#frames?.next();
    if (next === undefined || next.done === true) {
      this.#writeLast();
      return;
    }
    if (next.value !== pause) this.#joiner.write();
    if (this.#hasRoom) this.#continue();
    else this.#state = "blocked";
  }

  /** Writes the rest of the batch and its sync marker. */
  #writeLast(): void {
    const { store, subscriber, openCount } = this.#options;
    const [wanted, batch, joiner] = [this.#wanted, this.#batch, this.#joiner];
    if (wanted === undefined || batch === undefined) return;
    const digest = wanted.isExtended ? wanted.projection.digest?.(batch.snapshot) : undefined;
    const { before, snapshot, computedAtMs, changes } = batch;
    const marker = syncMarker(batch, store, wanted.isExtended, openCount());
    if (changes.only !== undefined && changes.only.length < joinedBytes && digest !== undefined) {
      joiner.add(marker.closing(changes.only, digest));
    } else {
      if (changes.only !== undefined) joiner.add(changes.only);
      joiner.add(digest === undefined ? marker.frame : marker.withDigest(digest));
    }
    // Before the write: the acknowledgement may arrive before the write returns.
    const { byteCount } = joiner;
    subscriber.sent({ after: before?.revision ?? 0, revision: snapshot.revision, computedAtMs, byteCount });
    joiner.write();
    this.#ticket?.close();
    this.#release();
    // The digests of the subscriber are large and no longer needed.
    if (wanted.resume !== undefined) this.#wanted = { ...wanted, resume: undefined };
    if (this.#leaving !== undefined) {
      this.#end(this.#leaving);
      return;
    }
    this.#state = "idle";
    this.#beginNext();
  }

  #release(): void {
    this.#batch = undefined;
    this.#frames = undefined;
    this.#joiner.reset();
  }
}

/** A decoded request of a Watch call. */
export interface Wanted {
  readonly projection: Projection;
  /** Computes the first batch instead of Reset and the whole view; undefined for a subscriber that holds nothing. */
  readonly resume?: ((snapshot: Snapshot) => Changes) | undefined;
  readonly isExtended: boolean;
  /** Number of requested batches, from 1. */
  readonly count: number;
  /** Revision of the last batch that was received; undefined if the client received everything sent so far. */
  readonly received: number | undefined;
}

/** The output of a stream. No method is called after `end`. */
export interface WatchSink {
  /** Takes one or more whole frames; false if the caller should wait for {@link WatchStream.drained}. */
  write(frames: Frame): boolean;
  /** The stream can take a request again after it was full. */
  room(): void;
  /** The stream is over. `error` is the reason, unless the client knows it. */
  end(error?: ConnectError): void;
}

interface WatchStreamOptions<Request> {
  readonly store: Store;
  readonly subscriber: Subscriber;
  readonly sink: WatchSink;
  /** Decodes a request; undefined for a report, which requests no batch. Errors: ConnectError. */
  readonly read: (request: Request) => Wanted | undefined;
  /** Counts the stream until the end of its first batch. Errors: ConnectError if too many streams wait. */
  readonly enter: (wanted: Wanted) => StartTicket | undefined;
  /** Returns the number of open streams. */
  readonly openCount: () => number;
}

/** Cap on outstanding batches; beyond it, the stream takes no more requests. */
const maxCredits = 10_000;

/**
 * The state of a stream.
 *
 * | State | Meaning | Next |
 * |---|---|---|
 * | `idle` | no batch is requested, or the sink must drain first | `waiting`, `due` |
 * | `waiting` | a batch is requested, and the snapshot has not changed | `due`; `idle` for another request |
 * | `due` | waits for its turn to compute a batch | `writing`; `waiting` if the batch is empty |
 * | `writing` | writes a batch | `blocked`, `idle` |
 * | `blocked` | the sink is full in the middle of a batch | `writing` |
 * | `over` | closed or ended | |
 */
type State = "idle" | "waiting" | "due" | "writing" | "blocked" | "over";

/**
 * Joins the frames (encoded messages) of a batch into fewer writes. *Bound:* {@link joinedBytes} and one frame.
 */
class FrameJoiner {
  readonly #write: (frames: Frame) => void;
  #frames: Frame[] | undefined;
  #heldBytes = 0;
  #writtenBytes = 0;

  constructor(write: (frames: Frame) => void) {
    this.#write = write;
  }

  /** Size of all frames since {@link reset}, in bytes. */
  get byteCount(): number {
    return this.#writtenBytes + this.#heldBytes;
  }

  /** Adds a frame, and writes the frames before it if it is large. True if the caller should write now. */
  add(frame: Frame): boolean {
    const isLarge = frame.length >= largeFrameBytes;
    if (isLarge || this.#heldBytes >= joinedBytes) this.write();
    // Not an empty array to push to: it would have capacity for many frames, at each batch of each stream.
    if (this.#frames === undefined) this.#frames = [frame];
    else this.#frames.push(frame);
    this.#heldBytes += frame.length;
    return isLarge || this.#heldBytes >= joinedBytes;
  }

  /** Writes the frames that were added since the last write. */
  write(): void {
    const held = this.#frames;
    const first = held?.[0];
    if (held === undefined || first === undefined) return;
    const frames = held.length === 1 ? first : Buffer.concat(held, this.#heldBytes);
    this.#writtenBytes += this.#heldBytes;
    this.#frames = undefined;
    this.#heldBytes = 0;
    this.#write(frames);
  }

  /** Discards the frames that were not written. */
  reset(): void {
    this.#frames = undefined;
    this.#heldBytes = 0;
    this.#writtenBytes = 0;
  }
}

/** Frames are joined up to this size, in bytes: a write costs more than a copy of this length. */
const joinedBytes = 16 * 1024;

/** A frame of at least this size is written alone, in bytes: many streams share it, and a copy would belong to one. */
const largeFrameBytes = 4 * 1024;

/**
 * Requests that a stream may send at once, and per second after that. Our nodes send an acknowledgement every 100 ms at
 * most (see `ackIntervalFor`), a traffic report every 2 s, and a request for every 16 batches.
 */
const [burst, perSecond] = [100, 20];

/**
 * Limits the requests of one stream that must be decoded: reports, and requests for batches that differ from the one
 * before. Beyond the limit, the stream takes no requests for a while, and the client's data waits in its flow-control
 * window. Equal requests, as KPNG's clients send, cost little; outstanding batches limit them. */
class RequestLimit {
  readonly #onRoom: () => void;
  readonly #rate = new Rate(burst, perSecond);
  #timer: NodeJS.Timeout | undefined;

  /** Calls `onRoom` when there is room again. */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
  }

  get isFull(): boolean {
    return this.#timer !== undefined;
  }

  /** Counts a request. */
  add(): void {
    const waitMs = this.#rate.add(1, performance.now());
    if (waitMs > 0) this.#timer ??= setTimeout(() => this.#rest(), waitMs).unref();
  }

  /** The stream is over: `onRoom` is not called any more. */
  close(): void {
    clearTimeout(this.#timer);
  }

  #rest(): void {
    this.#timer = undefined;
    this.#onRoom();
  }
}
