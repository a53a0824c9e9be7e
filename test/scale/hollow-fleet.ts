import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { Feature, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import { BatchLog, BatchReader } from "./batches.ts";
import { HollowConnection } from "./hollow-connection.ts";
import { monotonicMs } from "./proc.ts";

export interface FleetOptions {
  /** `host:port`. */
  readonly address: string;
  readonly streams: number;
  /** Number of the node of the first stream: `node-7` for 7. */
  readonly firstNode: number;
  /** Request our own fields, as the kit does. False makes the request of a Go client. */
  readonly isExtended: boolean;
  /**
   * Path of a file with WatchReq.HeldDigests of each stream, one after the other, which makes the streams resume.
   * Default none: they hold nothing.
   */
  readonly heldDigests?: string | undefined;
}

export interface OpenResult {
  /** From the first dial until the last stream had received its first batch. */
  readonly elapsedMs: number;
  readonly receivedBytes: number;
}

/** One subscriber. */
interface Stream {
  readonly index: number;
  readonly request: WatchReq;
  /** The first request, encoded. */
  readonly first: Uint8Array;
  readonly acks: HollowAcks;
  connection: HollowConnection | undefined;
  /** The revision of its last batch, -1 before its first one. */
  revision: number;
  /** Outstanding requests, of which it sends several at once. */
  ahead: number;
}

/** Batches requested ahead, as in the kit; they refill when half of them have arrived. */
const askedAhead = 32;

/** Length of WatchReq.HeldDigests, in bytes. */
const heldBytes = 8_192;

/** Maximum number of connections being opened: more would only fill the listen queue. */
const maxDialling = 256;

/** Longest delay before a connection that failed to open is retried. */
const retryMs = 1_000;

/** Many subscribers that read batches without decoding or keeping them, and log when each batch was received. */
export class HollowFleet {
  readonly log = new BatchLog();
  readonly #options: FleetOptions;
  readonly #streams: readonly Stream[];
  #due: { ask(): void; acknowledge(): void }[] = [];
  #isOpening = false;
  #retries = 0;
  #lost: string | undefined;
  #wait: { readonly revision: number; left: number; done(error?: Error): void } | undefined;

  constructor(options: FleetOptions) {
    this.#options = options;
    const { streams, firstNode, isExtended } = options;
    const Features = isExtended ? [Feature.Extended, Feature.Batches] : [];
    const Count = isExtended ? askedAhead : 0;
    const held = options.heldDigests === undefined ? undefined : readFileSync(options.heldDigests);
    this.#streams = Array.from({ length: streams }, (_, index) => {
      const request = create(WatchReqSchema, { NodeName: `node-${firstNode + index}`, Features });
      const HeldDigests = held?.subarray(index * heldBytes, (index + 1) * heldBytes) ?? request.HeldDigests;
      return {
        ...{ index, request, first: toBinary(WatchReqSchema, { ...request, Count, HeldDigests }) },
        acks: new HollowAcks(ackIntervalFor(streams)),
        ...{ connection: undefined, revision: -1, ahead: askedAhead },
      };
    });
  }

  get receivedBytes(): number {
    return this.#streams.reduce((sum, { connection }) => sum + (connection?.receivedBytes ?? 0), 0);
  }

  /** Reason of the first unexpected loss of a stream; undefined if there was none. */
  get lost(): string | undefined {
    return this.#lost;
  }

  /**
   * Opens all streams, and resolves when each of them has its first batch.
   *
   * Rejects after `timeoutMs`, with the number of waiting streams.
   */
  async open(timeoutMs: number): Promise<OpenResult> {
    this.#isOpening = true;
    const startedAtMs = monotonicMs();
    const synced = this.reachedRevision(0, timeoutMs);
    synced.catch(() => undefined);
    await this.#dialAll();
    await synced;
    this.#isOpening = false;
    return { elapsedMs: monotonicMs() - startedAtMs, receivedBytes: this.receivedBytes };
  }

  /** Resolves when all streams have received `revision`; plain streams receive no revisions but 0. */
  reachedRevision(revision: number, timeoutMs: number): Promise<void> {
    const left = this.#streams.filter((stream) => stream.revision < revision).length;
    if (this.#lost !== undefined) return Promise.reject(new Error(`a stream was lost: ${this.#lost}`));
    if (left === 0) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timeout = setTimeout(() => {
        wait.done(new Error(`after ${timeoutMs} ms ${wait.left} of ${this.#streams.length} streams still wait`));
      }, timeoutMs);
      const wait = {
        revision,
        left,
        done: (error?: Error) => {
          clearTimeout(timeout);
          if (this.#wait === wait) this.#wait = undefined;
          if (error === undefined) resolve();
          else reject(error);
        },
      };
      this.#wait = wait;
    });
  }

  /** Resolves when no batch has arrived for `quietMs`; rejects if that does not happen within `timeoutMs`. */
  async quiet(quietMs: number, timeoutMs: number): Promise<void> {
    const untilMs = monotonicMs() + timeoutMs;
    for (let length = -1; length !== this.log.length; ) {
      if (monotonicMs() > untilMs) throw new Error(`batches still arrive after ${timeoutMs} ms`);
      length = this.log.length;
      await sleep(quietMs);
    }
  }

  async #dialAll(): Promise<void> {
    let dialling = 0;
    let room = Promise.withResolvers<void>();
    const dial = (stream: Stream): Promise<void> => {
      dialling += 1;
      return this.#dial(stream).finally(() => {
        dialling -= 1;
        room.resolve();
      });
    };
    const dials: Promise<void>[] = [];
    for (const stream of this.#streams) {
      while (dialling >= maxDialling) {
        room = Promise.withResolvers();
        await room.promise;
      }
      dials.push(dial(stream));
    }
    await Promise.all(dials);
  }

  /** Resolves when the connection is first open. */
  #dial(stream: Stream): Promise<void> {
    const { address } = this.#options;
    const at = address.lastIndexOf(":");
    const connected = Promise.withResolvers<void>();
    const reader = this.#makeReader(stream);
    stream.ahead = askedAhead;
    stream.connection = new HollowConnection({
      host: address.slice(0, at),
      port: Number(address.slice(at + 1)),
      request: stream.first,
      onConnected: connected.resolve,
      onData: (chunk, start, end) => reader.read(chunk, start, end),
      onLost: (reason) => this.#onLost(stream, reason).then(connected.resolve),
    });
    return connected.promise;
  }

  #makeReader(stream: Stream): BatchReader {
    return new BatchReader((revision) => {
      const atMs = monotonicMs();
      const wait = this.#wait;
      const wasMet = wait === undefined || stream.revision >= wait.revision;
      stream.revision = revision;
      this.log.add(stream.index, revision, atMs);
      this.#askNext(stream, revision);
      if (wait === undefined || wasMet || revision < wait.revision) return;
      wait.left -= 1;
      if (wait.left === 0) wait.done();
    });
  }

  /**
   * Sends a stream's next request after all received bytes are read. Real nodes send theirs in parallel; here the
   * request of one stream must not delay the time log of another.
   */
  #askNext(stream: Stream, revision: number): void {
    const { connection } = stream;
    const { isExtended } = this.#options;
    if (this.#due.length === 0) {
      setImmediate(() => {
        const due = this.#due;
        this.#due = [];
        for (const { ask } of due) ask();
        // Real nodes apply the batch first, so the acknowledgement is a separate packet.
        if (isExtended)
          setImmediate(() => {
            for (const { acknowledge } of due) acknowledge();
          });
      });
    }
    this.#due.push({
      ask: () => (isExtended ? this.#askAhead(stream, revision) : connection?.send(stream.first)),
      acknowledge: () => {
        if (revision > 0) stream.acks.applied(revision, (all) => connection?.acknowledge(all));
      },
    });
  }

  #askAhead(stream: Stream, revision: number): void {
    stream.ahead -= 1;
    if (stream.ahead > askedAhead / 2) return;
    const more = { ...stream.request, Count: askedAhead - stream.ahead, Received: BigInt(revision) };
    stream.ahead = askedAhead;
    stream.connection?.send(toBinary(WatchReqSchema, more));
  }

  async #onLost(stream: Stream, reason: string): Promise<void> {
    if (!this.#isOpening) {
      this.#lost ??= reason;
      this.#wait?.done(new Error(`a stream was lost: ${reason}`));
      return;
    }
    this.#retries += 1;
    if (this.#retries <= 3) process.stderr.write(`hollow nodes: reconnecting: ${reason}\n`);
    await sleep(Math.random() * retryMs);
    if (this.#isOpening) await this.#dial(stream);
  }
}

/** Schedules the acknowledgements of one stream, as the kit does: not more often than the watcher allows. */
class HollowAcks {
  readonly #intervalMs: number;
  #untold: { readonly revision: number; readonly atMs: number }[] = [];
  #nextMs = Number.NEGATIVE_INFINITY;
  #isWaiting = false;

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** Records an applied revision. `tell` is called now or later with all revisions to acknowledge. */
  applied(
    revision: number,
    tell: (all: readonly { readonly revision: number; readonly ageMs: number }[]) => void,
  ): void {
    this.#untold.push({ revision, atMs: monotonicMs() });
    if (this.#isWaiting) return;
    const say = (): void => {
      const nowMs = monotonicMs();
      const all = this.#untold.map((one) => ({ revision: one.revision, ageMs: nowMs - one.atMs }));
      this.#untold = [];
      this.#isWaiting = false;
      this.#nextMs = nowMs + this.#intervalMs * (1 + Math.random() / 2);
      tell(all.slice(-33));
    };
    const delayMs = this.#nextMs - monotonicMs();
    if (delayMs <= 0) {
      say();
      return;
    }
    this.#isWaiting = true;
    setTimeout(say, delayMs);
  }
}
