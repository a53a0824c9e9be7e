import { flagPadded, frameHeaderBytes, frameType } from "./http2-frames.ts";

export interface FrameListener {
  /** Called with a chunk of a stream's DATA, which is valid only during the call. */
  onData(streamId: number, chunk: Buffer, start: number, end: number): void;
  /** Called with a complete frame of any other type. */
  onFrame(type: number, flags: number, streamId: number, payload: Buffer): void;
}

/** Splits the bytes of one HTTP/2 connection into frames, without copying DATA. */
export class FrameReader {
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
    const streamId = this.#header.readUInt32BE(5) & 0x7fff_ffff;
    const isEnd = this.#left === 0;
    // The callback may read the next header before this call returns, so the state must be complete here.
    if (isEnd) this.#headerLength = 0;
    if (type === frameType.data) {
      if ((flags & flagPadded) !== 0)
        throw new Error("padded DATA frames are not supported: no server under test sends them");
      if (end > start) this.#listener.onData(streamId, chunk, start, end);
      if (isEnd && (flags & 0x1) !== 0) this.#listener.onFrame(type, flags, streamId, Buffer.alloc(0));
      return;
    }
    if (end > start) this.#payload.push(Buffer.from(chunk.subarray(start, end)));
    if (!isEnd) return;
    const payload = Buffer.concat(this.#payload);
    this.#payload = [];
    this.#listener.onFrame(type, flags, streamId, payload);
  }
}
