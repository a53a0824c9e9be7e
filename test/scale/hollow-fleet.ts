import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { Feature, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { ackIntervalFor } from "../../services/watcher/src/stream/session/acknowledgement.ts";
import { BatchLog, BatchReader, type Latencies, type MadeChange, type Quantiles, summarize } from "./batches.ts";
import { HeldView, type ViewDigest } from "./held-view.ts";
import { HollowConnection, type HollowTls } from "./hollow-connection.ts";
import { monotonicMs } from "./proc.ts";

export interface FleetOptions {
  /** `host:port`. */
  readonly address: string;
  /** Paths of PEM files; undefined for plaintext. */
  readonly tls?: { readonly ca: string; readonly key: string; readonly crt: string } | undefined;
  readonly streams: number;
  /** Number of the node of the first stream: `node-7` for 7. */
  readonly firstNode: number;
  /** Default 1, as for real nodes. */
  readonly streamsPerConnection?: number | undefined;
  /** Request our own fields, as the kit does. False makes the request of a Go client. */
  readonly isExtended: boolean;
  /**
   * Path of a file with WatchReq.HeldDigests of each stream, one after the other, which makes the streams resume.
   * Default none: they hold nothing.
   */
  readonly heldDigests?: string | undefined;
  /** Number of streams that keep the received items, for `digests`. */
  readonly sampled?: number | undefined;
  /**
   * Number of batches after which a reader stalls; 0 stalls before the first byte. Undefined for readers that read on.
   */
  readonly stallAfterBatches?: number | undefined;
}

export interface OpenResult {
  /** From the first dial until the last stream had received its first batch. */
  readonly elapsedMs: number;
  /** From the dial of each stream until it had received its first batch. */
  readonly each: Quantiles;
  readonly receivedBytes: number;
  /** Number of retries after a refused or lost connection. */
  readonly retries: number;
}

interface Slot {
  readonly firstStream: number;
  readonly requests: readonly Uint8Array[];
  connection: HollowConnection | undefined;
  dialledAtMs: number;
}

/** Batches requested by a reader that stalls: the server may send that many. */
const askedByStalled = 1_000;

/** Batches requested ahead by other readers, as in the kit; they refill when half of them have arrived. */
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
  readonly #tls: HollowTls | undefined;
  readonly #slots: readonly Slot[];
  readonly #held = new Map<number, HeldView>();
  /** By stream: batches since it was opened, and the revision of the last one. */
  readonly #batches: Uint32Array;
  readonly #revisions: Float64Array;
  /** Outstanding requests of streams that request several batches at once. */
  readonly #ahead: Uint16Array;
  readonly #requests: readonly WatchReq[];
  readonly #acks: readonly HollowAcks[];
  readonly #firstSyncMs: Float64Array;
  #due: { ask(): void; acknowledge(): void }[] = [];
  #isOpening = false;
  #retries = 0;
  #lost: string | undefined;
  #receivedBefore = 0;
  #wait: { isMet(stream: number): boolean; left: number; done(error?: Error): void } | undefined;

  constructor(options: FleetOptions) {
    this.#options = options;
    const { streams, firstNode, streamsPerConnection = 1, isExtended, sampled = 0, tls } = options;
    this.#tls = tls && { ca: readFileSync(tls.ca), key: readFileSync(tls.key), cert: readFileSync(tls.crt) };
    this.#batches = new Uint32Array(streams);
    this.#revisions = new Float64Array(streams);
    this.#firstSyncMs = new Float64Array(streams);
    const Features = isExtended ? [Feature.Extended, Feature.Batches] : [];
    this.#ahead = new Uint16Array(streams);
    this.#acks = Array.from({ length: streams }, () => new HollowAcks(ackIntervalFor(streams)));
    this.#requests = Array.from({ length: streams }, (_, stream) =>
      create(WatchReqSchema, { NodeName: `node-${firstNode + stream}`, Features }),
    );
    const Count = !isExtended ? 0 : options.stallAfterBatches === undefined ? askedAhead : askedByStalled;
    const held = options.heldDigests === undefined ? undefined : readFileSync(options.heldDigests);
    const requests = this.#requests.map((request, stream) => {
      const HeldDigests = held?.subarray(stream * heldBytes, (stream + 1) * heldBytes) ?? request.HeldDigests;
      return toBinary(WatchReqSchema, { ...request, Count, HeldDigests });
    });
    this.#slots = Array.from({ length: Math.ceil(streams / streamsPerConnection) }, (_, index) => {
      const firstStream = index * streamsPerConnection;
      const own = requests.slice(firstStream, firstStream + streamsPerConnection);
      return { firstStream, requests: own, connection: undefined, dialledAtMs: 0 };
    });
    // Samples are spread over all streams, to include every zone and both ends.
    for (let index = 0; index < Math.min(sampled, streams); index += 1) {
      this.#held.set(Math.floor((index * streams) / sampled), new HeldView());
    }
  }

  get receivedBytes(): number {
    return this.#slots.reduce((sum, slot) => sum + (slot.connection?.receivedBytes ?? 0), this.#receivedBefore);
  }

  /** Reason of the first unexpected loss of a stream; undefined if there was none. */
  get lost(): string | undefined {
    return this.#lost;
  }

  /**
   * Opens all streams, and resolves when each of them has its first batch, or when stalled readers are connected.
   *
   * Rejects after `timeoutMs`, with the number of waiting streams.
   */
  async open(timeoutMs: number): Promise<OpenResult> {
    this.#batches.fill(0);
    this.#revisions.fill(0);
    this.#firstSyncMs.fill(Number.NaN);
    this.#ahead.fill(askedAhead);
    this.#retries = 0;
    this.#isOpening = true;
    this.log.clear();
    const receivedBefore = this.receivedBytes;
    const startedAtMs = monotonicMs();
    const isStalled = this.#options.stallAfterBatches !== undefined;
    const synced = isStalled ? undefined : this.#until((stream) => (this.#batches[stream] ?? 0) > 0, timeoutMs);
    synced?.catch(() => undefined);
    await this.#dialAll();
    await synced;
    const elapsedMs = monotonicMs() - startedAtMs;
    this.#isOpening = false;
    return {
      elapsedMs,
      each: summarize(isStalled ? [] : [...this.#firstSyncMs].sort((a, b) => a - b)),
      receivedBytes: this.receivedBytes - receivedBefore,
      retries: this.#retries,
    };
  }

  /** Drops all connections at once. */
  drop(): void {
    this.#receivedBefore = this.receivedBytes;
    for (const slot of this.#slots) {
      slot.connection?.close();
      slot.connection = undefined;
    }
    this.#due = [];
  }

  /** Resolves when all streams have received `revision`. Only for servers that send revisions. */
  reachedRevision(revision: number, timeoutMs: number): Promise<void> {
    return this.#until((stream) => (this.#revisions[stream] ?? 0) >= revision, timeoutMs);
  }

  /** Resolves when all streams have received `count` batches since they were opened, including the first one. */
  reachedBatches(count: number, timeoutMs: number): Promise<void> {
    return this.#until((stream) => (this.#batches[stream] ?? 0) >= count, timeoutMs);
  }

  /** Smallest number of batches that a stream has received since it was opened. */
  get batches(): number {
    return this.#batches.reduce((least, count) => Math.min(least, count), Number.POSITIVE_INFINITY);
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

  latencies(changes: readonly MadeChange[], sinceRevision: number): Latencies {
    return this.log.latencies(changes, sinceRevision);
  }

  digests(): Readonly<Record<string, ViewDigest>> {
    const { firstNode } = this.#options;
    return Object.fromEntries([...this.#held].map(([stream, held]) => [`node-${firstNode + stream}`, held.digest()]));
  }

  async #dialAll(): Promise<void> {
    let dialling = 0;
    let room = Promise.withResolvers<void>();
    const dial = (slot: Slot): Promise<void> => {
      dialling += 1;
      return this.#dial(slot).finally(() => {
        dialling -= 1;
        room.resolve();
      });
    };
    const dials: Promise<void>[] = [];
    for (const slot of this.#slots) {
      while (dialling >= maxDialling) {
        room = Promise.withResolvers();
        await room.promise;
      }
      dials.push(dial(slot));
    }
    await Promise.all(dials);
  }

  /** Resolves when the connection is first open. */
  #dial(slot: Slot): Promise<void> {
    const { address, stallAfterBatches, isExtended } = this.#options;
    const at = address.lastIndexOf(":");
    const connected = Promise.withResolvers<void>();
    const readers = slot.requests.map((_, index) => this.#makeReader(slot, slot.firstStream + index));
    for (const index of slot.requests.keys()) {
      const stream = slot.firstStream + index;
      this.#ahead[stream] = askedAhead;
      if (this.#held.has(stream)) this.#held.set(stream, new HeldView());
    }
    slot.dialledAtMs = monotonicMs();
    const connection = new HollowConnection({
      host: address.slice(0, at),
      port: Number(address.slice(at + 1)),
      tls: this.#tls,
      requests: slot.requests,
      requestsAhead: stallAfterBatches === undefined || isExtended ? 1 : askedByStalled,
      onConnected: () => {
        connected.resolve();
        if (stallAfterBatches === 0) connection.stall();
      },
      onData: (index, chunk, start, end) => {
        this.#held.get(slot.firstStream + index)?.read(chunk, start, end);
        readers[index]?.read(chunk, start, end);
      },
      onLost: (reason) => this.#onLost(slot, reason).then(connected.resolve),
    });
    slot.connection = connection;
    return connected.promise;
  }

  #makeReader(slot: Slot, stream: number): BatchReader {
    const { stallAfterBatches } = this.#options;
    return new BatchReader((revision) => {
      const atMs = monotonicMs();
      const wait = this.#wait;
      const wasMet = wait === undefined || wait.isMet(stream);
      const batches = (this.#batches[stream] ?? 0) + 1;
      this.#batches[stream] = batches;
      this.#revisions[stream] = revision;
      if (batches === 1) this.#firstSyncMs[stream] = atMs - slot.dialledAtMs;
      this.log.add(stream, revision, atMs);
      if (stallAfterBatches !== undefined) {
        if (batches >= stallAfterBatches) slot.connection?.stall();
        return;
      }
      this.#askNext(slot, stream, revision);
      if (wait === undefined || wasMet || !wait.isMet(stream)) return;
      wait.left -= 1;
      if (wait.left === 0) wait.done();
    });
  }

  /**
   * Sends a stream's next request after all received bytes are read. Real nodes send theirs in parallel; here the
   * request of one stream must not delay the time log of another.
   */
  #askNext(slot: Slot, stream: number, revision: number): void {
    const { connection } = slot;
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
    const index = stream - slot.firstStream;
    this.#due.push({
      ask: () => this.#ask(connection, stream, index, revision),
      acknowledge: () => {
        if (revision > 0) this.#acks[stream]?.applied(revision, (all) => connection?.acknowledge(index, all));
      },
    });
  }

  #ask(connection: HollowConnection | undefined, stream: number, index: number, revision: number): void {
    if (!this.#options.isExtended) {
      connection?.request(index);
      return;
    }
    const ahead = (this.#ahead[stream] ?? 0) - 1;
    const isDue = ahead <= askedAhead / 2;
    this.#ahead[stream] = isDue ? askedAhead : ahead;
    const request = this.#requests[stream];
    if (!isDue || request === undefined) return;
    const more = { ...request, Count: askedAhead - ahead, Received: BigInt(revision) };
    connection?.send(index, toBinary(WatchReqSchema, more));
  }

  async #onLost(slot: Slot, reason: string): Promise<void> {
    if (!this.#isOpening) {
      // The server may disconnect a stalled reader.
      if (this.#options.stallAfterBatches !== undefined) return;
      this.#lost ??= reason;
      this.#wait?.done(new Error(`a stream was lost: ${reason}`));
      return;
    }
    this.#retries += 1;
    if (this.#retries <= 3) process.stderr.write(`hollow nodes: reconnecting: ${reason}\n`);
    await sleep(Math.random() * retryMs);
    if (this.#isOpening) await this.#dial(slot);
  }

  #until(isMet: (stream: number) => boolean, timeoutMs: number): Promise<void> {
    let left = 0;
    for (let stream = 0; stream < this.#batches.length; stream += 1) if (!isMet(stream)) left += 1;
    if (this.#lost !== undefined) return Promise.reject(new Error(`a stream was lost: ${this.#lost}`));
    if (left === 0) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timeout = setTimeout(() => {
        wait.done(new Error(`after ${timeoutMs} ms ${wait.left} of ${this.#batches.length} streams still wait`));
      }, timeoutMs);
      const wait = {
        isMet,
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
