import type { ServerHttp2Stream } from "node:http2";
import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { Sets as GlobalSets, GlobalWatchReqSchema } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Sets as LocalSets, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { pingHeader } from "@kpng/process/connection/dial.ts";
import { staleHeader } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Admission } from "../../connection/admission.ts";
import type { Connection } from "../../connection/connections.ts";
import { Rate } from "../../connection/limits.ts";
import { type Frame, frameHeaderBytes } from "../../items/frames.ts";
import { type OpenWatch, openGlobalWatch, openLocalWatch, type WatchContext } from "../session/requests.ts";
import type { WatchSink, WatchStream } from "../session/watch-stream.ts";
import { type Call, formatPeer } from "./connect-handler.ts";

/**
 * Returns the handler of Watch calls, which supports only gRPC and returns false for other methods. All streams share
 * the frames. With 500 streams, a message of 200 bytes takes 8 µs of CPU time per stream; in connect-node, which
 * encodes it for each stream, it would take 42 µs.
 */
export function makeGrpcWatch(options: GrpcWatchOptions): (call: Call, connection: Connection) => boolean {
  const { hasLocalApi = true, hasGlobalApi = true } = options;
  const methods = new Map<string, (call: Call, connection: Connection) => void>();
  const add = <M extends DescMessage>(service: string, schema: M, open: OpenWatch<MessageShape<M>>): void => {
    methods.set(`/${service}/Watch`, (call, connection) => {
      new GrpcWatch(schema, open, call, connection, options).start();
    });
  };
  if (hasLocalApi) add(LocalSets.typeName, WatchReqSchema, openLocalWatch);
  if (hasGlobalApi) add(GlobalSets.typeName, GlobalWatchReqSchema, openGlobalWatch);
  return (call, connection) => {
    const { request, response } = call;
    const method = methods.get(request.url);
    if (method === undefined) return false;
    if (request.method === "POST" && /^application\/grpc(\+proto)?$/i.test(request.headers["content-type"] ?? "")) {
      method(call, connection);
      return true;
    }
    response.writeHead(415);
    response.end();
    // This discards the request.
    request.resume();
    return true;
  };
}

interface GrpcWatchOptions extends WatchContext {
  readonly hasLocalApi?: boolean | undefined;
  readonly hasGlobalApi?: boolean | undefined;
  readonly admission: Admission;
  /** Interval between pings, in milliseconds, which a response header announces. */
  readonly pingMs: number;
  readonly log: Log;
}

/**
 * Maximum size of a request, in bytes. Our requests contain up to 8 KiB of digests. Decoding a hostile request of this
 * size takes 16 ms.
 */
const maxRequestBytes = 16 * 1024;

/** Maximum size of a request that is recognized when the client repeats it, in bytes. */
const maxRepeatedBytes = 1_024;

/**
 * Number of requests, except repetitions, that a stream may send in a burst, and per second after that. Our nodes send
 * at most ten acknowledgements per second (`ackIntervalFor`), and one request for every 16 batches.
 */
const [burst, perSecond] = [100, 20];

/**
 * Connects an HTTP/2 stream to a `WatchStream`. It uses the stream directly, because Node.js's request and response
 * objects would buffer everything a second time. While the `WatchStream` is full or the client exceeds a rate, nothing
 * is read, and further requests wait in the client's flow-control window.
 */
class GrpcWatch<M extends DescMessage> implements WatchSink {
  readonly #schema: M;
  readonly #call: Call;
  readonly #connection: Connection;
  readonly #options: GrpcWatchOptions;
  readonly #peer: string;
  readonly #stream: ServerHttp2Stream;
  readonly #watch: WatchStream<MessageShape<M>>;
  #messages = new MessageSplitter(maxRequestBytes);
  readonly #rate = new Rate(burst, perSecond);
  /**
   * KPNG's clients repeat one request for each batch. Requests with equal bytes yield the same object, which is decoded
   * only once.
   */
  #first: { readonly bytes: Uint8Array; readonly request: MessageShape<M> } | undefined;
  /** Timer that ends the pause after the client has exceeded a rate. */
  #pause: NodeJS.Timeout | undefined;
  #isComplete = false;
  #isOver = false;

  constructor(
    schema: M,
    open: OpenWatch<MessageShape<M>>,
    call: Call,
    connection: Connection,
    options: GrpcWatchOptions,
  ) {
    const { request, response, rights } = call;
    this.#schema = schema;
    this.#call = call;
    this.#connection = connection;
    this.#options = options;
    this.#stream = response.stream;
    this.#peer = formatPeer(request.socket);
    this.#watch = open(options, { peer: this.#peer, rights, userAgent: request.headers["user-agent"] }, this);
  }

  start(): void {
    const { subscribers, pingMs, admission, log } = this.#options;
    const { request, response, leave } = this.#call;
    const stream = this.#stream;
    stream.once("close", this.#onGone);
    // If the client resets the stream without an error, or closes the connection, Node.js destroys the stream only
    // after all pending writes, which then never complete. Without this listener, the stream would never end.
    stream.once("aborted", this.#onGone);
    // A "close" event follows. An "error" event without a listener would end the process.
    stream.on("error", (error) => log.debug("client disconnected", { rpc: request.url, reason: reasonOf(error) }));
    const stale = subscribers.store.currency.staleReason === undefined ? {} : { [staleHeader]: "1" };
    response.writeHead(200, { "content-type": "application/grpc+proto", [pingHeader]: String(pingMs), ...stale });
    // This listener is added after the header has been sent, because ending a call also sends a header, and a second
    // header would throw.
    leave.addEventListener("abort", this.#onLeave, { once: true });
    if (leave.aborted) this.#onLeave();
    if (this.#peer !== "") admission.countMemory(stream, () => this.#messages.unreadBytes);
    stream.on("drain", () => this.#watch.drained());
    stream.on("data", (chunk: Uint8Array) => {
      if (this.#isOver) return;
      this.#messages.push(chunk);
      this.#takeAll();
      if (this.#messages.unreadBytes > 0) this.#messages.compact();
    });
    stream.once("end", () => {
      this.#isComplete = true;
      this.#takeAll();
    });
  }

  write(frames: Frame): boolean {
    return this.#stream.write(frames);
  }

  room(): void {
    // This runs asynchronously, because the stream calls `room` before it has finished its own step.
    if (this.#stream.isPaused()) queueMicrotask(this.#takeAll);
  }

  end(failure?: ConnectError): void {
    this.#forget();
    // `ConnectError.from` gives this code to errors of the watcher itself. Without the client's address, which differs
    // each time, the log limits repetitions.
    if (failure?.code === Code.Unknown) {
      this.#options.log.error("a stream failed", { rpc: this.#call.request.url, reason: failure.rawMessage });
    }
    if (this.#stream.destroyed) return;
    const { response } = this.#call;
    // The trailers are set on the response. With a request listener, trailers set on the stream would be sent twice.
    response.addTrailers({
      ...Object.fromEntries(failure?.metadata ?? []),
      "grpc-status": String(failure?.code ?? 0),
      // encodeURIComponent would not work here, because grpc-js does not decode an encoded comma.
      ...(failure === undefined ? {} : { "grpc-message": encodeURI(failure.rawMessage.toWellFormed()) }),
    });
    response.end();
    // This discards further input.
    this.#stream.resume();
  }

  readonly #onLeave = (): void => this.#watch.leave(ConnectError.from(this.#call.leave.reason));

  readonly #onGone = (): void => {
    this.#forget();
    this.#watch.close();
    this.#stream.destroy();
  };

  readonly #takeAll = (): void => {
    try {
      while (!this.#isOver && !this.#watch.isFull && !this.#mustPause()) {
        const message = this.#messages.next();
        if (message !== undefined) {
          this.#take(message);
          continue;
        }
        if (this.#isComplete) {
          this.#messages.end();
          this.#watch.finish();
        }
        break;
      }
    } catch (error) {
      this.#watch.end(ConnectError.from(error));
    }
    // A stream that is over discards its input. If it were paused, it would not close until the connection closes.
    if (this.#isOver) return;
    if (this.#watch.isFull || this.#pause !== undefined) this.#stream.pause();
    else if (this.#stream.isPaused()) this.#stream.resume();
  };

  /**
   * True if a rate is exceeded; reading then resumes after a pause. This is checked before each message, so that many
   * new streams together stay within the rate of their connection.
   */
  #mustPause(): boolean {
    if (this.#pause !== undefined) return true;
    const pauseMs = Math.max(this.#rate.pauseMs, this.#connection.requestRate.pauseMs);
    if (pauseMs === 0) return false;
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.#takeAll();
    }, pauseMs).unref();
    return true;
  }

  #take(bytes: Uint8Array): void {
    this.#connection.requestRate.add(bytes.length);
    if (this.#first !== undefined && Buffer.compare(this.#first.bytes, bytes) === 0) {
      this.#watch.take(this.#first.request);
      return;
    }
    this.#rate.add(1);
    const request = this.#decode(bytes);
    if (bytes.length <= maxRepeatedBytes) this.#first ??= { bytes: Uint8Array.from(bytes), request };
    this.#watch.take(request);
  }

  /** Decodes a request. Errors: INVALID_ARGUMENT. */
  #decode(bytes: Uint8Array): MessageShape<M> {
    try {
      return fromBinary(this.#schema, bytes);
    } catch (cause) {
      throw new ConnectError("the request could not be decoded", Code.InvalidArgument, undefined, undefined, cause);
    }
  }

  #forget(): void {
    this.#isOver = true;
    // This frees the received data, because a client may leave its half of the stream open.
    this.#messages = new MessageSplitter(maxRequestBytes);
    clearTimeout(this.#pause);
    this.#call.leave.removeEventListener("abort", this.#onLeave);
  }
}

/**
 * Splits the data of a gRPC request into messages. *Bound:* one message of `maxBytes`, and the chunks that follow it.
 */
class MessageSplitter {
  readonly #maxBytes: number;
  /** Bytes of incomplete messages. */
  #unread: Uint8Array = noBytes;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get unreadBytes(): number {
    return this.#unread.length;
  }

  /** Copies the unread bytes, because a chunk retains all data that was read from the socket together with it. */
  compact(): void {
    if (this.#unread.buffer.byteLength > 2 * this.#unread.length) this.#unread = new Uint8Array(this.#unread);
  }

  push(chunk: Uint8Array): void {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
  }

  /**
   * Returns the next complete message; undefined if there is none.
   *
   * Errors: ConnectError RESOURCE_EXHAUSTED for a message that is too long, UNIMPLEMENTED for a compressed message.
   */
  next(): Uint8Array | undefined {
    const unread = this.#unread;
    if (unread.length < frameHeaderBytes) return undefined;
    if (unread[0] !== 0) throw new ConnectError("compressed requests are not supported", Code.Unimplemented);
    const length = new DataView(unread.buffer, unread.byteOffset).getUint32(1);
    if (length > this.#maxBytes) {
      throw new ConnectError(`the message has ${length} bytes, more than ${this.#maxBytes}`, Code.ResourceExhausted);
    }
    const end = frameHeaderBytes + length;
    if (unread.length < end) return undefined;
    this.#unread = unread.length === end ? noBytes : unread.subarray(end);
    return unread.subarray(frameHeaderBytes, end);
  }

  /**
   * To be called at the end of the request. Errors: ConnectError INVALID_ARGUMENT if the request ends inside a message.
   */
  end(): void {
    const { length } = this.#unread;
    if (length > 0) throw new ConnectError(`the request ends ${length} bytes into a message`, Code.InvalidArgument);
  }
}

const noBytes = new Uint8Array();
