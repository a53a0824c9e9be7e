import { connect, type Socket } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  connectionStart,
  encodeFrame,
  encodeMessage,
  encodeRequestHeaders,
  encodeWindowUpdate,
  flagAck,
  flagEndHeaders,
  flagEndStream,
  flagPadded,
  frameHeaderBytes,
  frameType,
  largestWindow,
  settingsAck,
} from "./http2-frames.ts";

interface HollowConnectionOptions {
  readonly host: string;
  readonly port: number;
  /** The first request, encoded. */
  readonly request: Uint8Array;
  readonly onConnected: () => void;
  /** Called with a chunk that the stream received, which is valid only during the call. */
  readonly onData: (chunk: Buffer, start: number, end: number) => void;
  /** Called once, when the connection or its stream ends for a reason other than `close`. */
  readonly onLost: (reason: string) => void;
}

/**
 * Read buffer shared by all sockets: the callback consumes the bytes before the next read.
 *
 * This saves an allocation of 64 KiB per read, which would cost more than all processing of the bytes.
 */
const sharedBuffer = Buffer.allocUnsafeSlow(512 * 1024);

const requestHeaders = encodeRequestHeaders("/localv1.Sets/Watch", "kpng", "http");
const streamId = 1;

/** Connection of a hollow node, with one Watch stream. */
export class HollowConnection {
  readonly #socket: Socket;
  readonly #options: HollowConnectionOptions;
  readonly #reader: FrameReader;
  #receivedBytes = 0;
  /** Bytes received since the last WINDOW_UPDATE. */
  #unacknowledgedBytes = 0;
  #isOver = false;

  constructor(options: HollowConnectionOptions) {
    this.#options = options;
    this.#reader = new FrameReader({
      onData: options.onData,
      onFrame: (type, flags, payload) => this.#onFrame(type, flags, payload),
    });
    const { host, port } = options;
    this.#socket = connect({
      host,
      port,
      noDelay: true,
      onread: { buffer: sharedBuffer, callback: (length) => this.#onRead(length) },
    });
    this.#socket.once("connect", () => this.#start());
    this.#socket.on("error", (error) => this.#lose(error.message));
    this.#socket.on("close", () => this.#lose("the connection was closed"));
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  /** Sends another request, encoded. */
  send(message: Uint8Array): void {
    if (!this.#isOver) this.#socket.write(encodeMessage(streamId, message));
  }

  /** Acknowledges applied revisions, the oldest first, each with its age in milliseconds. */
  acknowledge(applied: readonly { readonly revision: number; readonly ageMs: number }[]): void {
    const Timings = { WaitMicros: 200n, RenderMicros: 1_100n, CommitMicros: 24_000n };
    // An acknowledgement has at most 32 earlier revisions.
    const Earlier = applied.slice(-33).map(({ revision, ageMs }) => ({
      Applied: BigInt(revision),
      AgeMicros: BigInt(Math.round(ageMs * 1_000)),
    }));
    const { Applied = 0n, AgeMicros = 0n } = Earlier.pop() ?? {};
    const Ack = { Applied, Timings, AgeMicros, Earlier };
    this.send(toBinary(WatchReqSchema, create(WatchReqSchema, { Ack })));
  }

  /** Closes the connection like a killed process, without GOAWAY. */
  close(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }

  #start(): void {
    const headers = encodeFrame(frameType.headers, flagEndHeaders, streamId, requestHeaders);
    this.#socket.write(Buffer.concat([connectionStart, headers, encodeMessage(streamId, this.#options.request)]));
    this.#options.onConnected();
  }

  #onRead(length: number): boolean {
    if (this.#isOver) return false;
    this.#receivedBytes += length;
    this.#unacknowledgedBytes += length;
    if (this.#unacknowledgedBytes > largestWindow / 2) {
      this.#socket.write(encodeWindowUpdate(0, this.#unacknowledgedBytes));
      this.#unacknowledgedBytes = 0;
    }
    this.#reader.read(sharedBuffer, length);
    return true;
  }

  #onFrame(type: number, flags: number, payload: Buffer): void {
    switch (type) {
      case frameType.settings:
        if ((flags & flagAck) === 0) this.#socket.write(settingsAck);
        return;
      case frameType.ping:
        if ((flags & flagAck) === 0) this.#socket.write(encodeFrame(frameType.ping, flagAck, 0, payload));
        return;
      case frameType.rstStream:
        this.#lose(`the server reset the stream (code ${payload.readUInt32BE(0)})`);
        return;
      case frameType.goaway:
        this.#lose(`the server said GOAWAY (code ${payload.readUInt32BE(4)}) ${payload.subarray(8)}`);
        return;
      default:
        if ((flags & flagEndStream) !== 0 && (type === frameType.headers || type === frameType.data)) {
          this.#lose(`the server ended the stream: ${payload.toString("latin1")}`);
        }
    }
  }

  #lose(reason: string): void {
    if (this.#isOver) return;
    this.close();
    this.#options.onLost(reason);
  }
}

interface FrameListener {
  /** Called with a chunk of DATA, which is valid only during the call. */
  onData(chunk: Buffer, start: number, end: number): void;
  /** Called with a complete frame of any other type. */
  onFrame(type: number, flags: number, payload: Buffer): void;
}

/** Splits the bytes of one HTTP/2 connection into frames, without copying DATA. */
class FrameReader {
  readonly #listener: FrameListener;
  readonly #header = Buffer.alloc(frameHeaderBytes);
  #headerLength = 0;
  /** Bytes of the frame's payload not received yet. */
  #left = 0;
  #payload: Buffer[] = [];

  constructor(listener: FrameListener) {
    this.#listener = listener;
  }

  read(chunk: Buffer, length: number): void {
    let at = 0;
    while (at < length) {
      if (this.#headerLength < frameHeaderBytes) {
        const end = Math.min(length, at + frameHeaderBytes - this.#headerLength);
        this.#headerLength += chunk.copy(this.#header, this.#headerLength, at, end);
        at = end;
        if (this.#headerLength < frameHeaderBytes) return;
        this.#left = this.#header.readUIntBE(0, 3);
      }
      const end = Math.min(length, at + this.#left);
      this.#left -= end - at;
      this.#take(chunk, at, end);
      at = end;
    }
  }

  #take(chunk: Buffer, start: number, end: number): void {
    const type = this.#header[3] ?? 0;
    const flags = this.#header[4] ?? 0;
    const isEnd = this.#left === 0;
    // The callback may read the next header before this call returns, so the state must be complete here.
    if (isEnd) this.#headerLength = 0;
    if (type === frameType.data) {
      if ((flags & flagPadded) !== 0)
        throw new Error("padded DATA frames are not supported: no server under test sends them");
      if (end > start) this.#listener.onData(chunk, start, end);
      if (isEnd && (flags & 0x1) !== 0) this.#listener.onFrame(type, flags, Buffer.alloc(0));
      return;
    }
    if (end > start) this.#payload.push(Buffer.from(chunk.subarray(start, end)));
    if (!isEnd) return;
    const payload = Buffer.concat(this.#payload);
    this.#payload = [];
    this.#listener.onFrame(type, flags, payload);
  }
}
