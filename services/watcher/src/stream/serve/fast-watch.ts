import type { Http2ServerRequest, Http2Session } from "node:http2";
import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { getOrMake } from "@kpng/model/collections.ts";
import { Sets as GlobalSets, GlobalWatchReqSchema } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Sets as LocalSets, WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { hasMoreFields } from "@kpng/model/wire/protobuf.ts";
import { pingHeader } from "@kpng/process/connection/dial.ts";
import { staleHeader } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Admission } from "../../connection/admission.ts";
import { Rate } from "../../connection/limits.ts";
import { Acknowledgement } from "../session/acknowledgement.ts";
import {
  type OpenWatch,
  openGlobalWatch,
  openLocalWatch,
  type WatchClient,
  type WatchContext,
} from "../session/open-watch.ts";
import { refuseRequest } from "../session/requests.ts";
import type { WatchSink, WatchStream } from "../session/watch-stream.ts";
import { type Call, formatPeer } from "./call.ts";
import { readTimeout } from "./connect-handler.ts";
import { MessageSplitter, readChunks } from "./read-messages.ts";

/**
 * Returns a handler that answers Watch over gRPC. It writes frames that are encoded once and shared by all
 * streams. It returns false for any other request, which the router then handles.
 *
 * With 500 streams and messages of 200 bytes, a message takes 8 µs of CPU here and 42 µs in connect-node, which encodes
 * and wraps each message for each stream.
 */
export function makeFastWatch(options: FastWatchOptions, stop: AbortSignal): (call: Call) => boolean {
  const opens = new Map<string, Open>();
  const add = <M extends DescMessage, S extends object>(
    api: string,
    schema: M,
    open: OpenWatch<MessageShape<M> | S>,
    readShort: (bytes: Uint8Array) => S | undefined,
  ): void => {
    opens.set(`/${api}/Watch`, (client, sink) => {
      const stream = open(options, client, sink);
      let last: { readonly bytes: Uint8Array; readonly request: MessageShape<M> } | undefined;
      const take = (bytes: Uint8Array): void => {
        const short = readShort(bytes);
        if (short !== undefined) {
          stream.take(short);
          return;
        }
        // KPNG's clients repeat the same bytes. Equal bytes give the same object, which the stream recognizes.
        if (last !== undefined && Buffer.compare(last.bytes, bytes) === 0) {
          stream.take(last.request);
          return;
        }
        const request = decode(schema, bytes);
        if (request === undefined) {
          throw refuseRequest(options.refusals, client.peer, `the request has more than ${maxFields} fields`);
        }
        if (bytes.length <= maxCachedBytes) last ??= { bytes: Uint8Array.from(bytes), request };
        stream.take(request);
      };
      return { stream, take };
    });
  };
  if (options.hasLocalApi) add(LocalSets.typeName, WatchReqSchema, openLocalWatch, Acknowledgement.fromBytes);
  if (options.hasGlobalApi) add(GlobalSets.typeName, GlobalWatchReqSchema, openGlobalWatch, () => undefined);
  // One listener for all calls: adding a listener takes time in proportion to those that the signal has.
  const openCalls = new Set<() => void>();
  const rates = new WeakMap<Http2Session, Rate>();
  const endAll = (): void => {
    for (const end of openCalls) end();
  };
  stop.addEventListener("abort", endAll, { once: true });
  return (call) => {
    const { request } = call;
    const open = isPlainGrpc(request) ? opens.get(request.url) : undefined;
    if (open === undefined) return false;
    const { session } = request.stream;
    const rate = session && getOrMake(rates, session, () => new Rate(burstBytes, bytesPerSecond));
    answer(open, call, options, { stop, openCalls, rate });
    return true;
  };
}

interface FastWatchOptions extends WatchContext {
  readonly hasLocalApi: boolean;
  readonly hasGlobalApi: boolean;
  readonly maxRequestBytes: number;
  /** Is told what the calls hold of messages. */
  readonly admission: Admission;
  /** Time between two pings, in milliseconds; clients get it in a response header. */
  readonly pingMs: number;
  readonly log: Log;
}

/**
 * Bytes of requests that a connection may send at once, and per second after that; the watcher then reads no more for a
 * while. 8 KiB take up to 0.4 ms to decode.
 *
 * A proxy may carry the streams of a hundred nodes on one connection. When they resume, each sends 8 KiB at once. Later
 * a node sends acknowledgements, and at most 5 KB per second for a report of its traffic, if a hundred Services have
 * some; most nodes send a small part of that.
 */
const [burstBytes, bytesPerSecond] = [1_024 * 1_024, 256 * 1_024];

/** Maximum size of a cached request, in bytes. A request with digests is larger, and is sent once. */
const maxCachedBytes = 1_024;

/** A Watch call that takes encoded requests. */
interface Watch {
  readonly stream: Pick<WatchStream<never>, "isFull" | "finish" | "drained" | "leave" | "abort" | "close">;
  /** Errors: ConnectError. */
  take(message: Uint8Array): void;
}

/** The reasons for which the watcher ends a call or reads it later. */
interface Endings {
  readonly stop: AbortSignal;
  /** Functions that end the open calls when the watcher stops. */
  readonly openCalls: Set<() => void>;
  /** The rate of the connection; undefined if it has ended. */
  readonly rate: Rate | undefined;
}

type Open = (client: WatchClient, sink: WatchSink) => Watch;

/** False for requests with compression or JSON: they are rare, and the router supports them. */
function isPlainGrpc({ method, headers }: Http2ServerRequest): boolean {
  const type = headers["content-type"];
  return (
    method === "POST" &&
    (type === "application/grpc" || type === "application/grpc+proto") &&
    (headers["grpc-encoding"] ?? "identity") === "identity"
  );
}

/**
 * Maximum number of fields in a request, with those of its embedded messages; they take 2 to 3 ms. The largest requests
 * of our nodes are reports of the traffic of 101 Services, with 910 fields.
 */
const maxFields = 1_500;

/** Returns undefined for a request with too many fields. Errors: INVALID_ARGUMENT. */
function decode<M extends DescMessage>(schema: M, bytes: Uint8Array): MessageShape<M> | undefined {
  try {
    return hasMoreFields(schema, bytes, maxFields) ? undefined : fromBinary(schema, bytes);
  } catch (cause) {
    throw new ConnectError("the request could not be decoded", Code.InvalidArgument, undefined, undefined, cause);
  }
}

/**
 * Connects an HTTP/2 stream to a Watch call. It reads and writes the stream itself, because the request and response
 * objects around it would buffer everything a second time.
 */
function answer(
  open: Open,
  { request, response, leave, rights }: Call,
  { maxRequestBytes, admission, pingMs, log, store }: FastWatchOptions,
  { stop, openCalls, rate }: Endings,
): void {
  const { stream } = response;
  const messages = new MessageSplitter(maxRequestBytes);
  let isComplete = false;
  let isOver = false;
  let deadline: NodeJS.Timeout | undefined;
  /** A message with which the connection has sent more than it may. */
  let waiting: Uint8Array | undefined;
  /** Set until `waiting` may be taken. */
  let rest: NodeJS.Timeout | undefined;
  const takeAll = (): void => {
    try {
      while (!isOver && !watch.stream.isFull && rest === undefined) {
        if (waiting !== undefined) {
          const rested = waiting;
          waiting = undefined;
          watch.take(rested);
          continue;
        }
        const message = messages.next();
        if (message !== undefined) {
          const restMs = rate?.add(message.length, performance.now()) ?? 0;
          if (restMs === 0) watch.take(message);
          else {
            // It waits before it is taken, because the first message of each stream would be taken at once otherwise.
            // A copy, because the message is part of everything that was read with it.
            waiting = Uint8Array.from(message);
            rest = setTimeout(onRested, restMs).unref();
          }
          continue;
        }
        if (isComplete) {
          messages.end();
          watch.stream.finish();
        }
        break;
      }
    } catch (error) {
      watch.stream.abort(ConnectError.from(error));
    }
    // A stream that is over discards its input; paused, it would not close until the connection does.
    if (isOver) return;
    // Further requests wait in the flow-control window: at most one window is read ahead.
    if (watch.stream.isFull || rest !== undefined) stream.pause();
    else if (stream.isPaused()) stream.resume();
  };
  const onRested = (): void => {
    rest = undefined;
    takeAll();
  };
  const client = { peer: formatPeer(request.socket), rights, userAgent: request.headers["user-agent"] };
  const watch = open(client, {
    write: (frames) => stream.write(frames),
    room: () => {
      // Asynchronously, because the stream calls this before it has finished its own step.
      if (stream.isPaused()) queueMicrotask(takeAll);
    },
    end: (failure) => {
      forget();
      if (stream.destroyed) return;
      // Through the response: with a request listener, trailers of the stream would be sent twice.
      response.addTrailers({
        ...Object.fromEntries(failure?.metadata ?? []),
        "grpc-status": String(failure?.code ?? 0),
        // Not encodeURIComponent: grpc-js does not decode an encoded comma.
        ...(failure === undefined ? {} : { "grpc-message": encodeURI(failure.rawMessage) }),
      });
      response.end();
      // Discards further input.
      stream.resume();
    },
  });
  const onLeave = (): void => watch.stream.leave(ConnectError.from(leave.reason));
  const abort = (code: Code, reason: string): void => watch.stream.abort(new ConnectError(reason, code));
  const onStop = (): void => abort(Code.Unavailable, "the watcher stops");
  const forget = (): void => {
    isOver = true;
    clearTimeout(deadline);
    clearTimeout(rest);
    openCalls.delete(onStop);
    leave.removeEventListener("abort", onLeave);
  };
  const onGone = (): void => {
    forget();
    watch.stream.close();
    stream.destroy();
  };
  openCalls.add(onStop);
  leave.addEventListener("abort", onLeave, { once: true });
  stream.once("close", onGone);
  // If the client resets the stream without an error, or closes the connection, Node.js destroys the stream only after
  // all pending writes, which never complete then. Without this listener, the stream would never end.
  stream.once("aborted", onGone);
  // "close" follows. An "error" event without a listener would end the process.
  stream.on("error", (error) => log.debug("client disconnected", { rpc: request.url, reason: reasonOf(error) }));
  const stale = store.currency.staleReason === undefined ? {} : { [staleHeader]: "1" };
  response.writeHead(200, { "content-type": "application/grpc+proto", [pingHeader]: String(pingMs), ...stale });
  // After the header, because the end of a call sends one itself, and a second one throws.
  if (stop.aborted) onStop();
  else if (leave.aborted) onLeave();
  const timeout = readTimeout(request.headers["grpc-timeout"]);
  if (timeout === "invalid") abort(Code.InvalidArgument, "the header grpc-timeout is invalid");
  else if (timeout !== undefined && !isOver) {
    deadline = setTimeout(() => abort(Code.DeadlineExceeded, "the deadline of the call has passed"), timeout);
  }
  stream.on("drain", () => watch.stream.drained());
  readChunks(stream, (chunk) => {
    // The call is over; discard further input.
    if (isOver) return;
    messages.push(chunk);
    takeAll();
    if (messages.heldBytes > 0) messages.compact();
  });
  admission.hold(stream, () => messages.heldBytes + (waiting?.length ?? 0));
  stream.once("end", () => {
    isComplete = true;
    takeAll();
  });
}
