import { getPackedSettings } from "node:http2";

/** The subset of HTTP/2 (RFC 9113) and gRPC that hostile clients need, which send what no library would. */
export const frameType = {
  data: 0,
  headers: 1,
  rstStream: 3,
  settings: 4,
  ping: 6,
  windowUpdate: 8,
  continuation: 9,
} as const;

const frameHeaderBytes = 9;
export const flagEndHeaders = 0x4;

/** Largest HTTP/2 window: only the socket limits the server, never flow control. */
const largestWindow = 2 ** 31 - 1;

const initialWindow = 65_535;

export function encodeFrame(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  const frame = Buffer.alloc(frameHeaderBytes + payload.length);
  frame.writeUIntBE(payload.length, 0, 3);
  frame[3] = type;
  frame[4] = flags;
  frame.writeUInt32BE(streamId, 5);
  frame.set(payload, frameHeaderBytes);
  return frame;
}

function encodeWindowUpdate(streamId: number, increment: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(increment);
  return encodeFrame(frameType.windowUpdate, 0, streamId, payload);
}

/** First bytes of a client: preface, SETTINGS and the window of the connection. */
export const connectionStart: Buffer = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  encodeFrame(
    frameType.settings,
    0,
    0,
    // Response headers are not decoded, so the server must not use a dynamic header table.
    getPackedSettings({ headerTableSize: 0, enablePush: false, initialWindowSize: largestWindow }),
  ),
  encodeWindowUpdate(0, largestWindow - initialWindow),
]);

/**
 * Encodes HEADERS of a gRPC call without TLS as HPACK literals without indexing (RFC 7541 §6.2.2): equal bytes for every stream.
 */
export function encodeRequestHeaders(path: string, authority: string, scheme: "http" | "https"): Buffer {
  const text = (value: string): Buffer => {
    const bytes = Buffer.from(value);
    if (bytes.length > 126) throw new Error(`"${value}" is too long for a header of one length byte`);
    return Buffer.concat([Buffer.of(bytes.length), bytes]);
  };
  const named = (index: number, value: string): Buffer => Buffer.concat([Buffer.of(index), text(value)]);
  const literal = (name: string, value: string): Buffer => Buffer.concat([Buffer.of(0), text(name), text(value)]);
  return Buffer.concat([
    // Static table: 3 is ":method POST", 6 and 7 are ":scheme http" and "https"; 1 and 4 name ":authority" and ":path".
    Buffer.of(0x83, scheme === "http" ? 0x86 : 0x87),
    named(4, path),
    named(1, authority),
    literal("content-type", "application/grpc"),
    literal("te", "trailers"),
  ]);
}
