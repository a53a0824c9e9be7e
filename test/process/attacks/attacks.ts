import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { WatchEndpointsRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  connectionStart,
  encodeFrame,
  encodeMessage,
  encodeRequestHeaders,
  flagEndHeaders,
  flagEndStream,
  frameType,
} from "../../scale/http2-frames.ts";

/**
 * Bytes with which clients try to exhaust a watcher. `attacker.ts` sends them from a process of its own, so that the
 * probes of a test do not wait for it; this file only encodes them.
 */
export interface Attack {
  /** Number of connections at a time. The attacker replaces a connection that the watcher ends. */
  readonly connections: number;
  /** Port of the attack. Default the port of the streams. */
  readonly target?: "health" | undefined;
  /** False for a client that reads nothing. Default true. */
  readonly reads?: boolean | undefined;
  /** True for a client that closes its connection after the last piece. Default false: it stays open. */
  readonly closes?: boolean | undefined;
  /** Time between two pieces of a connection, in milliseconds. Default 0. */
  readonly pauseMs?: number | undefined;
  /** Returns what the client sends next, from index 0; undefined at the end. */
  readonly piece: (index: number) => Buffer | undefined;
}

const bytesPerPiece = 64 * 1024;

/** Repeats a frame up to the size of a piece. */
function repeated(frame: Buffer): Buffer {
  return Buffer.concat(Array.from({ length: Math.ceil(bytesPerPiece / frame.length) }, () => frame));
}

/** Sends `first` once, and `flood` without end. */
function flood(flood: Buffer, first: Buffer = connectionStart): Attack["piece"] {
  return (index) => (index === 0 ? first : flood);
}

/** Sends `first` once, and then a piece for each number of `count` streams: the next ones each time. */
function streams(count: number, stream: (id: number) => Buffer, first: Buffer = connectionStart): Attack["piece"] {
  return (index) => {
    if (index === 0) return first;
    const firstId = 2 * (index - 1) * count + 1;
    return Buffer.concat(Array.from({ length: count }, (_, at) => stream(firstId + 2 * at)));
  };
}

/** Sends one piece for each stream that a connection may have. */
function perStream(stream: (id: number) => Buffer): Attack["piece"] {
  return (index) => (index === 0 ? connectionStart : index > 100 ? undefined : stream(2 * index - 1));
}

/** Sends one piece. */
function once(bytes: Buffer): Attack["piece"] {
  return (index) => (index === 0 ? bytes : undefined);
}

/** HEADERS of a call. `fields` is the end of their block. */
function open(path: string, id: number, fields: Buffer = Buffer.alloc(0)): Buffer {
  return encodeFrame(
    frameType.headers,
    flagEndHeaders,
    id,
    Buffer.concat([encodeRequestHeaders(path, "kpng", "http"), fields]),
  );
}

/** HEADERS of a call whose block is continued in frames of at most 16 KiB. */
function openLarge(path: string, id: number, fields: Buffer): Buffer {
  const block = Buffer.concat([encodeRequestHeaders(path, "kpng", "http"), fields]);
  const parts = Array.from({ length: Math.ceil(block.length / 16_384) }, (_, at) =>
    block.subarray(at * 16_384, (at + 1) * 16_384),
  );
  return Buffer.concat(
    parts.map((part, at) =>
      encodeFrame(
        at === 0 ? frameType.headers : frameType.continuation,
        at === parts.length - 1 ? flagEndHeaders : 0,
        id,
        part,
      ),
    ),
  );
}

/** A header field of about `length` bytes, as an HPACK literal without indexing. */
function headerField(length: number): Buffer {
  // RFC 7541, section 5.1: 127 in the prefix, and the rest in groups of 7 bits.
  const rest = length - 127;
  return Buffer.concat([
    Buffer.of(0, 1, 0x78, 127, (rest & 127) | 128, ((rest >> 7) & 127) | 128, rest >> 14),
    Buffer.alloc(length, "y"),
  ]);
}

function request(message: MessageInitShape<typeof WatchReqSchema>): Uint8Array {
  return toBinary(WatchReqSchema, create(WatchReqSchema, message));
}

const watch = "/localv1.Sets/Watch";
const watchHealth = "/grpc.health.v1.Health/Watch";
const checkHealth = "/grpc.health.v1.Health/Check";
const askForNode = request({ NodeName: "n1" });
const manyStreams = Array.from({ length: 100 }, (_, at) => 2 * at + 1);
/** All of a message but the last byte. */
function unfinished(id: number, length = 60_000): Buffer {
  const message = Buffer.alloc(5 + length - 1);
  message.writeUInt32BE(length, 1);
  const parts = Array.from({ length: Math.ceil(message.length / 16_384) }, (_, at) =>
    message.subarray(at * 16_384, (at + 1) * 16_384),
  );
  return Buffer.concat(parts.map((part) => encodeFrame(frameType.data, 0, id, part)));
}
const rstStream = (id: number): Buffer => encodeFrame(frameType.rstStream, 0, id, Buffer.from([0, 0, 0, 8]));
const priority = (id: number): Buffer => encodeFrame(0x2, 0, id, Buffer.from([0, 0, 0, 0, 16]));
const settings = encodeFrame(frameType.settings, 0, 0, Buffer.from([0, 4, 0, 0, 255, 255]));
const increment = Buffer.from([0, 0, 0, 1]);
const failure = request({ Ack: { Applied: 1n, Failed: 1n, Error: "e".repeat(200), Earlier: [{ Applied: 1n }] } });
const smallFailure = request({ Ack: { Failed: 1n } });
const startWatch = (id: number): Buffer => Buffer.concat([open(watch, id), encodeMessage(id, askForNode)]);

const noWindow = Buffer.concat([
  connectionStart.subarray(0, 24),
  encodeFrame(frameType.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0])),
]);
const unreadQuery = (id: number): Buffer => {
  const message = encodeMessage(id, toBinary(WatchEndpointsRequestSchema, create(WatchEndpointsRequestSchema)));
  message[4] = flagEndStream;
  return Buffer.concat([open("/kpng.inspect.v1.InspectService/WatchEndpoints", id), message]);
};
/** Attacks by name. */
export const attacks = {
  "unread queries": {
    connections: 3,
    piece: once(Buffer.concat([noWindow, ...Array.from({ length: 1_000 }, (_, call) => unreadQuery(2 * call + 1))])),
  },
  pings: { connections: 20, piece: flood(repeated(encodeFrame(frameType.ping, 0, 0, Buffer.alloc(8)))) },
  "ping replies": { connections: 20, piece: flood(repeated(encodeFrame(frameType.ping, 1, 0, Buffer.alloc(8)))) },
  settings: { connections: 20, piece: flood(repeated(settings)) },
  "settings replies": {
    connections: 20,
    piece: flood(repeated(encodeFrame(frameType.settings, 1, 0, Buffer.alloc(0)))),
  },
  "window updates": {
    connections: 20,
    piece: flood(repeated(encodeFrame(frameType.windowUpdate, 0, 0, increment))),
  },
  "window updates of a stream": {
    connections: 20,
    piece: flood(
      repeated(encodeFrame(frameType.windowUpdate, 0, 1, increment)),
      Buffer.concat([connectionStart, startWatch(1)]),
    ),
  },
  priorities: { connections: 20, piece: flood(repeated(priority(1))) },
  "priorities of many streams": { connections: 20, piece: streams(4_000, priority) },
  "unknown frames": { connections: 20, piece: flood(repeated(encodeFrame(0x42, 0, 0, Buffer.alloc(0)))) },
  "empty data": {
    connections: 20,
    piece: flood(
      repeated(encodeFrame(frameType.data, 0, 1, Buffer.alloc(0))),
      Buffer.concat([connectionStart, startWatch(1)]),
    ),
  },
  resets: {
    connections: 20,
    piece: streams(500, (id) => Buffer.concat([open(watch, id), encodeMessage(id, askForNode), rstStream(id)])),
  },
  "resets of idle streams": { connections: 20, piece: flood(repeated(rstStream(1))) },
  // The client makes the watcher reset its streams (CVE-2025-8671): a window update of 0 is an error of the stream.
  "provoked resets": {
    connections: 20,
    piece: streams(500, (id) =>
      Buffer.concat([open(watch, id), encodeFrame(frameType.windowUpdate, 0, id, Buffer.alloc(4))]),
    ),
  },
  // Each call ends at once: its path is unknown.
  "unknown calls": {
    connections: 20,
    piece: streams(500, (id) =>
      encodeFrame(
        frameType.headers,
        flagEndHeaders | flagEndStream,
        id,
        encodeRequestHeaders("/nothing", "kpng", "http"),
      ),
    ),
  },
  continuations: {
    connections: 20,
    piece: flood(
      repeated(encodeFrame(frameType.continuation, 0, 1, Buffer.alloc(0))),
      Buffer.concat([
        connectionStart,
        encodeFrame(frameType.headers, 0, 1, encodeRequestHeaders(watch, "kpng", "http")),
      ]),
    ),
  },
  "large headers": {
    connections: 100,
    reads: false,
    piece: (index) =>
      index === 0 ? connectionStart : index > 100 ? undefined : openLarge(watch, 2 * index - 1, headerField(60_000)),
  },
  "watches of health": {
    connections: 20,
    piece: once(
      Buffer.concat([
        connectionStart,
        ...manyStreams.map((id) => Buffer.concat([open(watchHealth, id), encodeMessage(id, Buffer.alloc(0))])),
      ]),
    ),
  },
  // Each call has nearly a whole window.
  "unfinished requests": {
    connections: 20,
    pauseMs: 20,
    piece: perStream((id) => Buffer.concat([open(watch, id), unfinished(id)])),
  },
  "unfinished health checks": {
    connections: 60,
    pauseMs: 40,
    piece: perStream((id) => Buffer.concat([open(checkHealth, id), unfinished(id, 15_000)])),
  },
  // Beyond the rate at which a stream is read, requests wait in its window.
  "waiting requests": {
    connections: 60,
    pauseMs: 40,
    piece: perStream((id) =>
      Buffer.concat([startWatch(id), ...Array.from({ length: 120 }, () => encodeMessage(id, failure))]),
    ),
  },
  "waiting bytes": {
    connections: 60,
    pauseMs: 40,
    piece: perStream((id) => {
      const requests = Array.from({ length: 110 }, () => encodeMessage(id, smallFailure));
      const bytes = Array.from({ length: 4_000 }, () => encodeFrame(frameType.data, 0, id, Buffer.alloc(1)));
      return Buffer.concat([startWatch(id), ...requests, ...bytes]);
    }),
  },
  "trickled preface": {
    connections: 1_000,
    pauseMs: 500,
    piece: (index) => connectionStart.subarray(index, index + 1),
  },
  "trickled frames": {
    connections: 1_000,
    pauseMs: 20,
    piece: (index) => {
      const bytes = Buffer.concat([connectionStart, startWatch(1)]);
      return index === 0 ? connectionStart : bytes.subarray(connectionStart.length + index - 1).subarray(0, 1);
    },
  },
  "silent connections": { connections: 4_000, piece: () => undefined },
  "short connections": { connections: 200, closes: true, piece: () => undefined },
  "short sessions": { connections: 200, closes: true, piece: once(connectionStart) },
  acknowledgements: {
    connections: 20,
    pauseMs: 50,
    piece: flood(
      Buffer.concat(manyStreams.map((id) => encodeMessage(id, failure))),
      Buffer.concat([connectionStart, ...manyStreams.map(startWatch)]),
    ),
  },
  "first views": {
    connections: 50,
    reads: true,
    closes: true,
    piece: once(Buffer.concat([connectionStart, ...manyStreams.map(startWatch)])),
  },
  metrics: {
    connections: 200,
    target: "health",
    piece: once(Buffer.from("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")),
  },
} as const satisfies Readonly<Record<string, Attack>>;

/** Name of an attack. */
export type AttackName = keyof typeof attacks;
