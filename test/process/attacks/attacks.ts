import { create, toBinary } from "@bufbuild/protobuf";
import { WatchEndpointsRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import {
  connectionStart,
  encodeFrame,
  encodeMessage,
  encodeRequestHeaders,
  flagEndHeaders,
  flagEndStream,
  frameType,
} from "@kpng/watcher/testing/http2-frames.ts";

/**
 * Bytes with which clients try to exhaust a watcher. `attacker.ts` sends them from a process of its own, so that the
 * probes of a test do not wait for it; this file only encodes them.
 */
export interface Attack {
  /** Number of connections at a time. The attacker replaces a connection that the watcher ends. */
  readonly connections: number;
  /** Time between two pieces of a connection, in milliseconds. Default 0. */
  readonly pauseMs?: number | undefined;
  /** Returns what the client sends next, from index 0; undefined at the end. */
  readonly piece: (index: number) => Buffer | undefined;
}

/** Sends one piece. */
function once(bytes: Buffer): Attack["piece"] {
  return (index) => (index === 0 ? bytes : undefined);
}

/** HEADERS of a call. */
function open(path: string, id: number): Buffer {
  return encodeFrame(frameType.headers, flagEndHeaders, id, encodeRequestHeaders(path, "kpng", "http"));
}

const watch = "/localv1.Sets/Watch";

/** All of a message of nearly the accepted size but the last byte. */
function unfinished(id: number): Buffer {
  const length = 15_000;
  const message = Buffer.alloc(5 + length - 1);
  message.writeUInt32BE(length, 1);
  const parts = Array.from({ length: Math.ceil(message.length / 16_384) }, (_, at) =>
    message.subarray(at * 16_384, (at + 1) * 16_384),
  );
  return Buffer.concat(parts.map((part) => encodeFrame(frameType.data, 0, id, part)));
}

const noWindow = Buffer.concat([
  connectionStart.subarray(0, 24),
  encodeFrame(frameType.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0])),
]);

function unreadQuery(id: number): Buffer {
  const message = encodeMessage(id, toBinary(WatchEndpointsRequestSchema, create(WatchEndpointsRequestSchema)));
  message[4] = flagEndStream;
  return Buffer.concat([open("/kpng.inspect.v1.InspectService/WatchEndpoints", id), message]);
}

/** Attacks by name. */
export const attacks = {
  "unread queries": {
    connections: 3,
    piece: once(Buffer.concat([noWindow, ...Array.from({ length: 1_000 }, (_, call) => unreadQuery(2 * call + 1))])),
  },
  "unfinished requests": {
    connections: 60,
    pauseMs: 20,
    piece: (index) => {
      if (index === 0) return connectionStart;
      const id = 2 * index - 1;
      return index > 100 ? undefined : Buffer.concat([open(watch, id), unfinished(id)]);
    },
  },
} as const satisfies Readonly<Record<string, Attack>>;

/** Name of an attack. */
export type AttackName = keyof typeof attacks;
