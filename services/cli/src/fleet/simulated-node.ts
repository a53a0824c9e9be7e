import type { ClientHttp2Stream, IncomingHttpHeaders } from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { Acknowledgements, WatchRequests } from "@kpng/backend-kit/receive/watch-requests.ts";
import { OpItemSchema, Sets, type WatchReq, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeMark, type SyncMark } from "@kpng/model/wire/local-message.ts";
import type { Http2Connection } from "@kpng/process/connection/dial.ts";
import { Reconnect } from "@kpng/process/connection/reconnect.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { readRevision, SyncReader } from "./sync-reader.ts";

/** What a simulated node does wrong, by name. */
export const nodeFaults = {
  cut: "breaks each connection at random, after 5 s on average",
  slow: "takes a second to apply a batch",
  freeze: "reads nothing more after its first batch, and keeps its connection open",
  duplicate: "has the name of the first node",
} as const;

/** Name of a fault. */
export type NodeFault = keyof typeof nodeFaults;

interface SimulatedNodeOptions {
  readonly name: string;
  /** Opens a connection to a watcher, with this receive window; undefined for the default. */
  readonly connect: (windowBytes: number | undefined) => Http2Connection;
  /** Requests our own fields and acknowledges, as the kit does. False makes the requests of the original KPNG. */
  readonly isExtended: boolean;
  /** Default: none. */
  readonly fault?: NodeFault | undefined;
  /** Returns a number from 0 up to but not including 1. */
  readonly random: () => number;
  /** WatchReq.HeldDigests: what the node claims to hold when it opens a stream. Default: nothing. */
  readonly heldDigests?: Uint8Array | undefined;
  /** Called after each batch. */
  readonly onBatch: (node: SimulatedNode) => void;
}

/** Mean time between two cuts, in milliseconds. */
const meanCutMs = 5_000;

/** Time in which a slow node applies a batch, in milliseconds. */
const slowMs = 1_000;

/** Largest HTTP/2 window, so that nothing but its socket makes the watcher wait. A frozen node keeps the default. */
const largestWindow = 2 ** 31 - 1;

/**
 * A node without rules. It opens streams, requests batches, acknowledges and reconnects as a backend does, with the
 * kit's own code; but it decodes nothing of its view, only finds where each batch ends. A thousand such nodes receive a
 * change with about 20 ms of CPU time, a hundredth of what backends need.
 */
export class SimulatedNode {
  readonly #options: SimulatedNodeOptions;
  readonly #acks = new Acknowledgements();
  /** Number of batches received. */
  batchCount = 0;
  receivedBytes = 0;
  /** Number of streams that have ended. */
  lostCount = 0;
  /** Revision of its last batch; 0 before the first one, and always for a node that is not extended. */
  revision = 0;
  /** Reason of the last lost stream; undefined if the present one works. */
  failure: string | undefined;
  /** True once its stream has delivered the whole view. */
  isSynced = false;

  constructor(options: SimulatedNodeOptions) {
    this.#options = options;
  }

  /** Runs until `signal` aborts, then resolves. `onDialled` is called when a connection is open or has ended. */
  async run(signal: AbortSignal, onDialled: () => void = () => undefined): Promise<void> {
    const reconnect = new Reconnect({ random: this.#options.random });
    while (!signal.aborted) {
      reconnect.opening();
      const error = await this.#follow(reconnect, onDialled, signal);
      onDialled();
      if (signal.aborted) return;
      this.isSynced = false;
      this.lostCount += 1;
      this.failure = error instanceof Error ? error.message : String(error);
      await waitMs(reconnect.ended(error).delayMs, signal);
    }
  }

  /** Follows one stream and returns the reason why it ended. */
  async #follow(reconnect: Reconnect, onDialled: () => void, signal: AbortSignal): Promise<unknown> {
    const { name, connect, fault, random, isExtended } = this.#options;
    const { promise: ended, resolve: end } = Promise.withResolvers<unknown>();
    const endAs = (reason: string) => () => end(new Error(reason));
    const abort = (): void => end(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    const { session, headers } = connect(fault === "freeze" ? undefined : largestWindow);
    session.on("error", end).on("close", endAs("the connection was closed")).once("connect", onDialled);
    const stream = session.request({ ...callHeaders, ...headers });
    const readStatus = (from: IncomingHttpHeaders): void => {
      if (from["grpc-status"] !== undefined) end(statusError(from));
    };
    stream.on("response", readStatus).on("trailers", readStatus);
    // If the session fails, the stream says only that it was cancelled, with the reason as its cause.
    stream.on("error", (error) => end(error.cause ?? error)).on("close", endAs("the watcher ended the stream"));
    // Exponential, so that cuts come at random moments.
    const cutMs = -Math.log(1 - random()) * meanCutMs;
    const timer = fault === "cut" ? setTimeout(endAs("cut by the simulation"), cutMs) : undefined;
    const requests = this.#makeRequests();
    this.#read(stream, requests, reconnect, end);
    requests.next();
    const plain = create(WatchReqSchema, { NodeName: name });
    const sending = new AbortController();
    const sent = (async () => {
      for await (const request of requests.send(sending.signal)) stream.write(encode(isExtended ? request : plain));
    })();
    const reason = await ended;
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    sending.abort();
    session.destroy();
    await sent;
    return reason;
  }

  #makeRequests(): WatchRequests {
    const { name, heldDigests } = this.#options;
    const program = { name: "kpng-simulate", version: "" };
    return new WatchRequests({ nodeName: name, program, acks: this.#acks }, heldDigests);
  }

  #read(
    stream: ClientHttp2Stream,
    requests: WatchRequests,
    reconnect: Reconnect,
    fail: (error: unknown) => void,
  ): void {
    const { fault, isExtended, onBatch } = this.#options;
    let first: SyncMark | undefined;
    const reader = new SyncReader((message) => {
      first ??= { ...readMark(message), ...(isExtended ? {} : plainMark) };
      const revision = readRevision(message);
      const mark = { ...first, revision };
      this.batchCount += 1;
      this.revision = Number(revision);
      this.isSynced = true;
      this.failure = undefined;
      reconnect.progressed();
      requests.received(mark);
      onBatch(this);
      if (fault === "freeze") return void stream.pause();
      const receivedAtMs = performance.now();
      // The nodes of a process share one thread: first read what has arrived for the others.
      const applied = (): void => {
        const endedAtMs = performance.now();
        requests.next();
        this.#acks.succeeded(mark, { receivedAtMs, startedAtMs: receivedAtMs, renderedAtMs: receivedAtMs, endedAtMs });
      };
      if (fault === "slow") setTimeout(applied, slowMs);
      else setImmediate(applied);
    });
    stream.on("data", (chunk: Buffer) => {
      this.receivedBytes += chunk.length;
      try {
        reader.read(chunk);
      } catch (error) {
        fail(error);
      }
    });
  }
}

/** Maximum number of nodes that connect at the same time: more would overflow the watcher's listen queue. */
const maxDialling = 256;

/** Runs all nodes until `signal` aborts. They connect one batch after the other. */
export async function runFleet(nodes: readonly SimulatedNode[], signal: AbortSignal): Promise<void> {
  const running: Promise<void>[] = [];
  for (let first = 0; first < nodes.length && !signal.aborted; first += maxDialling) {
    const dialled = nodes
      .slice(first, first + maxDialling)
      .map((node) => new Promise<void>((resolve) => running.push(node.run(signal, resolve))));
    await Promise.all(dialled);
  }
  await Promise.all(running);
}

/** What the original KPNG knows of a Sync. */
const plainMark = { takesAcks: false, takesCounts: false } as const;

const callHeaders = {
  ":method": "POST",
  ":path": `/${Sets.typeName}/Watch`,
  "content-type": "application/grpc",
  te: "trailers",
} as const;

function readMark(message: Uint8Array): SyncMark {
  const { Op: op } = fromBinary(OpItemSchema, message);
  if (op.case !== "Sync") throw new Error("the message is no Sync");
  return decodeMark(op.value);
}

/** Encodes a request as a gRPC message with its length prefix. */
function encode(request: WatchReq): Buffer {
  const message = toBinary(WatchReqSchema, request);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/**
 * Returns the error that a watcher ended a stream with. Its message stays as it is on the wire: only characters outside
 * ASCII and `%` are escaped there, and an invalid escape must not end the program.
 */
function statusError(trailers: IncomingHttpHeaders): ConnectError {
  const { "grpc-status": status, "grpc-message": message = "", "grpc-retry-pushback-ms": pushback } = trailers;
  const metadata = pushback === undefined ? {} : { "grpc-retry-pushback-ms": String(pushback) };
  return new ConnectError(String(message), Number(status), metadata);
}
