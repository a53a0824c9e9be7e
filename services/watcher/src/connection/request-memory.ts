import type { Http2Session, ServerHttp2Stream } from "node:http2";
import type { Refusals } from "./refusals.ts";

/** Memory of a chunk of data that waits to be read, besides its bytes: a chunk may have a single one. */
const chunkBytes = 256;

/**
 * Limits the memory of requests that have not been read completely: those whose rest has not arrived, and those that
 * wait, because a token is being checked or the client sends faster than it may. Each call may have a flow-control
 * window of 64 KiB of them, and a connection 100 calls.
 *
 * Beyond the limit, the connections that hold the most are ended.
 *
 * *Bound:* one entry for each call. *Cost:* all calls are counted once for every quarter of the limit that arrives.
 *
 * `serve` creates it; `Admission` adds each call over HTTP/2 and TCP, and `makeFastWatch` reports what it holds of
 * messages.
 */
export class RequestMemory {
  readonly #maxBytes: number;
  readonly #refusals: Refusals;
  /** Functions that return what a call holds, in bytes. */
  readonly #calls = new Map<ServerHttp2Stream, () => number>();
  /** At least what all calls hold: what they held when counted, and all that has arrived since then. */
  #bytes = 0;

  constructor(maxBytes: number, refusals: Refusals) {
    this.#maxBytes = maxBytes;
    this.#refusals = refusals;
  }

  /** Counts what waits in the queue of a stream until it closes. */
  add(stream: ServerHttp2Stream): void {
    const { push } = stream;
    let chunkCount = 0;
    stream.push = (chunk: Uint8Array | null, encoding?: BufferEncoding): boolean => {
      if (chunk !== null) {
        chunkCount = stream.readableLength === 0 ? 1 : chunkCount + 1;
        this.grew(chunk.length + chunkBytes);
      }
      return push.call(stream, chunk, encoding);
    };
    this.#calls.set(stream, () => (stream.readableLength === 0 ? 0 : stream.readableLength + chunkBytes * chunkCount));
    stream.once("close", () => this.#calls.delete(stream));
  }

  /** Counts what a reader of the stream holds instead. `held` returns its bytes. */
  replace(stream: ServerHttp2Stream, held: () => number): void {
    if (this.#calls.has(stream)) this.#calls.set(stream, held);
  }

  /** Some call holds more than before, by at most `bytes`. May end connections. */
  grew(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes > this.#maxBytes) this.#recount();
  }

  #recount(): void {
    const bySession = new Map<Http2Session, number>();
    this.#bytes = 0;
    for (const [{ session }, held] of this.#calls) {
      // What is left of a connection that has ended is about to be freed.
      if (session === undefined || session.destroyed) continue;
      const bytes = held();
      this.#bytes += bytes;
      if (bytes > 0) bySession.set(session, (bySession.get(session) ?? 0) + bytes);
    }
    const most = [...bySession].sort(([, a], [, b]) => b - a);
    // With some room, so that the next chunk does not cause another count.
    for (const [session, bytes] of most) {
      if (this.#bytes <= (this.#maxBytes * 3) / 4) break;
      this.#bytes -= bytes;
      const fields = { held: inMebibytes(bytes), limit: inMebibytes(this.#maxBytes) };
      this.#refusals.add("requests", session.socket?.remoteAddress ?? "", fields);
      session.destroy();
    }
  }
}

const inMebibytes = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MiB`;
