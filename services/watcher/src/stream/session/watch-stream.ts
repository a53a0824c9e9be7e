import { ConnectError } from "@connectrpc/connect";
import { type Frame, resetFrame } from "../../items/frames.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import type { Changes, Projection } from "../delta/projection.ts";
import type { AdmissionTicket } from "./admission-room.ts";
import { type Rounds, roundsOf } from "./rounds.ts";
import type { Subscriber } from "./subscriber.ts";
import type { Batch } from "./subscription.ts";
import { syncMarker } from "./sync-marker.ts";
import { turns } from "./turns.ts";

/** What one request asks for. */
export interface Wanted {
  readonly projection: Projection;
  /** What the stream begins with in place of Reset and everything; undefined for a subscriber that holds nothing. */
  readonly resume?: ((snapshot: Snapshot) => Changes) | undefined;
  readonly isExtended: boolean;
  /** How many batches it asks for, from 1. */
  readonly count: number;
  /** Revision of the last batch that was received; undefined if all that was sent before was. */
  readonly received: number | undefined;
}

/** Where a stream's frames go. Nothing is called after `end`. */
export interface WatchSink {
  /** Takes whole frames, one or many; false if it wants no more until it calls {@link WatchStream.drained}. */
  write(frames: Frame): boolean;
  /** A request that was not taken because the stream was full may come now. */
  room(): void;
  /** The stream is over; `error` says why if that is not for the client to know already. */
  end(error?: ConnectError): void;
}

export interface WatchStreamOptions<Request> {
  readonly store: Store;
  readonly subscriber: Subscriber;
  readonly sink: WatchSink;
  /** Errors: ConnectError. Undefined for a request that asks for nothing. */
  readonly read: (request: Request) => Wanted | undefined;
  /** Admits what a stream begins with. Errors: ConnectError. */
  readonly enter: (wanted: Wanted) => AdmissionTicket | undefined;
  /** How many streams are open. */
  readonly openCount: () => number;
}

/** Pieces are joined up to this size before they are written, in bytes: a write costs more than to copy so much. */
const joinedBytes = 16 * 1024;

/** A piece from this size on is written by itself, in bytes: many share it, and a copy of it would be this stream's alone. */
const largePieceBytes = 4 * 1024;

/** Batches that may be asked for before more requests are left where they are: who asks for ever is not listened to. */
const maxGranted = 10_000;

/**
 * One call of Watch: for each batch that is asked for, one, as soon as there is something to tell. The order is in the
 * proto file.
 *
 * It is driven from outside, by calls and by the store, and waits without anything but an entry at the store: at thousands
 * of streams, what a stream costs while nothing happens, and what one more turn of promises costs, is what counts.
 *
 * *Bound:* one request for something else, and the pieces of a batch up to {@link joinedBytes}.
 */
export class WatchStream<Request> {
  readonly #options: WatchStreamOptions<Request>;
  readonly #rounds: Rounds;
  #state: "idle" | "waiting" | "due" | "writing" | "blocked" | "over" = "idle";
  /** False from a write that filled the sink until it is drained. */
  #hasRoom = true;
  /** What is asked for, or was last. */
  #wanted: Wanted | undefined;
  /** How many batches of it are asked for and not begun. */
  #granted = 0;
  /** Something else, which is asked for and not begun. */
  #ahead: Wanted | undefined;
  #isFirst = true;
  /** Reset was written. */
  #isReset = false;
  /** The first batch was made. */
  #hasBegun = false;
  #ticket: AdmissionTicket | undefined;
  /** True if no more requests come. */
  #isFinished = false;
  /** Why the stream is to end after the batch that is being written. */
  #leaving: ConnectError | undefined;
  #batch: Batch | undefined;
  #pieces: Iterator<Frame> | undefined;
  /** Pieces that are not written yet. */
  #held: Frame[] | undefined;
  #heldBytes = 0;
  #byteCount = 0;
  readonly #onStored = (): void => this.#await();
  readonly #onTurn = (): void => this.#advance();

  constructor(options: WatchStreamOptions<Request>) {
    this.#options = options;
    this.#rounds = roundsOf(options.store);
  }

  /** True if no further request can be taken now: what comes must wait until the sink is told of room. */
  get isFull(): boolean {
    return this.#ahead !== undefined || this.#granted >= maxGranted;
  }

  /** Takes a request; there must be room. */
  take(request: Request): void {
    if (this.#state === "over") return;
    let wanted: Wanted | undefined;
    try {
      wanted = this.#options.read(request);
    } catch (error) {
      this.#end(ConnectError.from(error));
      return;
    }
    if (wanted === undefined) return;
    this.#noteReceipt(wanted);
    if (this.#isMore(wanted)) this.#granted += wanted.count;
    else this.#replace(wanted);
    this.#beginNext();
  }

  /** No more requests come: the stream ends when those that came are answered. */
  finish(): void {
    this.#isFinished = true;
    this.#beginNext();
  }

  /** What was written last has gone. */
  drained(): void {
    this.#hasRoom = true;
    if (this.#state === "blocked") this.#goOn();
    else this.#beginNext();
  }

  /** Ends the stream with an error: after the batch that is being written, or now. */
  leave(error: ConnectError): void {
    if (this.#state === "writing" || this.#state === "blocked") this.#leaving ??= error;
    else this.#end(error);
  }

  /** Ends the stream with an error, now. */
  abort(error: ConnectError): void {
    this.#end(error);
  }

  /** The client is gone. */
  close(): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#rounds.cancelNext(this.#onStored);
    this.#release();
    this.#wanted = undefined;
    this.#ahead = undefined;
    this.#ticket?.close();
    this.#options.subscriber.close();
  }

  #end(error?: ConnectError): void {
    if (this.#state === "over") return;
    this.close();
    this.#options.sink.end(error);
  }

  /** A request that does not say what was received comes after all that was sent, if nothing more is under way. */
  #noteReceipt({ received }: Wanted): void {
    const { subscriber } = this.#options;
    if (received !== undefined) subscriber.received(received);
    else if (this.#state === "idle") subscriber.received(subscriber.sentRevision);
  }

  /** What was asked for before is not waited for any more. */
  #replace(wanted: Wanted): void {
    this.#ahead = wanted;
    if (this.#state !== "waiting") return;
    this.#rounds.cancelNext(this.#onStored);
    this.#state = "idle";
  }

  /** True if it asks for more of the same. */
  #isMore({ projection, resume }: Wanted): boolean {
    return this.#ahead === undefined && resume === undefined && projection === this.#wanted?.projection;
  }

  /** Once what was written before has gone: until then more may change, and then it is one batch. */
  #beginNext(): void {
    if (this.#state !== "idle") return;
    const ahead = this.#ahead;
    if (ahead === undefined && this.#granted === 0) {
      if (this.#isFinished) this.#end();
      return;
    }
    if (!this.#hasRoom) return;
    if (ahead === undefined) {
      const wasFull = this.isFull;
      this.#granted -= 1;
      this.#await();
      if (wasFull && !this.isFull) this.#options.sink.room();
      return;
    }
    this.#ahead = undefined;
    this.#granted = ahead.count - 1;
    if (this.#isFirst && !this.#enter(ahead)) return;
    this.#wanted = this.#hasBegun ? ahead : this.#open(ahead);
    this.#await();
    this.#options.sink.room();
  }

  /** False if the stream may not begin. */
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

  /** Says what the stream begins with, once, whatever is asked for before the first batch. */
  #open(wanted: Wanted): Wanted {
    if (this.#isReset) return { ...wanted, resume: undefined };
    if (wanted.resume === undefined) {
      this.#isReset = true;
      this.#hasRoom = this.#options.sink.write(resetFrame);
    }
    return wanted;
  }

  /** Until the store has something that this subscriber was not compared with. */
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
    const beginning = this.#wanted?.resume === undefined ? "begin" : "resume";
    turns.schedule(isNew ? beginning : "update", this.#onTurn);
  }

  #advance(): void {
    const wanted = this.#wanted;
    if (this.#state !== "due" || wanted === undefined) return;
    const { subscription } = this.#options.subscriber;
    try {
      const batch = subscription.advance(wanted.projection, wanted.resume);
      if (batch.rank === "update" && batch.changes.isEmpty) {
        if (this.#ahead === undefined) {
          this.#await();
        } else {
          // Something else was asked for while this waited for its turn.
          this.#state = "idle";
          this.#beginNext();
        }
        return;
      }
      this.#batch = batch;
      this.#hasBegun = true;
      this.#byteCount = 0;
      this.#state = "writing";
      const { only } = batch.changes;
      if (only === undefined) {
        this.#pieces = batch.changes.frames()[Symbol.iterator]();
        this.#writeNext();
      } else {
        this.#writeLast();
      }
    } catch (error) {
      this.#end(ConnectError.from(error));
    }
  }

  #goOn(): void {
    this.#state = "writing";
    // The rest of news is news: it would wait as long as there are any others.
    turns.schedule(this.#batch?.rank === "update" ? "update" : "continue", () => {
      if (this.#state !== "writing") return;
      try {
        this.#writeNext();
      } catch (error) {
        this.#end(ConnectError.from(error));
      }
    });
  }

  /** Writes what is ready of the batch: small pieces together, and the large one after them. */
  #writeNext(): void {
    for (;;) {
      const next = this.#pieces?.next();
      if (next === undefined || next.done === true) {
        this.#writeLast();
        return;
      }
      const isLarge = next.value.length >= largePieceBytes;
      if (isLarge) this.#writeHeld();
      this.#hold(next.value);
      if (isLarge || this.#heldBytes >= joinedBytes) break;
    }
    this.#writeHeld();
    if (this.#hasRoom) this.#goOn();
    else this.#state = "blocked";
  }

  #hold(frame: Frame): void {
    // Not an empty one to push to: it would begin with room for many, at each batch of each stream.
    if (this.#held === undefined) this.#held = [frame];
    else this.#held.push(frame);
    this.#heldBytes += frame.length;
  }

  #writeLast(): void {
    const { store, subscriber, openCount } = this.#options;
    const [wanted, batch] = [this.#wanted, this.#batch];
    if (wanted === undefined || batch === undefined) return;
    const digest = wanted.isExtended ? wanted.projection.digest?.(batch.snapshot) : undefined;
    const { before, snapshot, computedAtMs, changes } = batch;
    const marker = syncMarker(batch, store, wanted.isExtended, openCount());
    if (changes.only !== undefined && digest !== undefined) {
      this.#hold(marker.closing(changes.only, digest));
    } else {
      if (changes.only !== undefined) this.#hold(changes.only);
      this.#hold(digest === undefined ? marker.frame : marker.withDigest(digest));
    }
    const byteCount = this.#byteCount + this.#heldBytes;
    // Before it is written: the acknowledgement may be here before the writer comes back.
    subscriber.sent({ after: before?.revision ?? 0, revision: snapshot.revision, computedAtMs, byteCount });
    this.#writeHeld();
    this.#ticket?.done();
    this.#release();
    // What the subscriber held is of no more use, and is not small.
    if (wanted.resume !== undefined) this.#wanted = { ...wanted, resume: undefined };
    if (this.#leaving !== undefined) {
      this.#end(this.#leaving);
      return;
    }
    this.#state = "idle";
    this.#beginNext();
  }

  #writeHeld(): void {
    const held = this.#held;
    const first = held?.[0];
    if (held === undefined || first === undefined) return;
    const frames = held.length === 1 ? first : Buffer.concat(held, this.#heldBytes);
    this.#byteCount += this.#heldBytes;
    this.#held = undefined;
    this.#heldBytes = 0;
    this.#hasRoom = this.#options.sink.write(frames);
    this.#ticket?.wrote();
  }

  #release(): void {
    this.#batch = undefined;
    this.#pieces = undefined;
    this.#held = undefined;
    this.#heldBytes = 0;
  }
}
