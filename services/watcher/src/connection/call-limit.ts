import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import type { Refusals } from "./refusals.ts";

/**
 * Maximum size of the headers of a call, in bytes: that of Node.js for HTTP/1.1. Node.js itself allows 64 KiB over
 * HTTP/2, which a call would keep in memory; tokens of ServiceAccounts have 1 to 2 KiB.
 */
const maxHeaderBytes = 16 * 1024;

/**
 * Calls that a connection may have in progress, with those that were refused, when a further one is refused: nodes have
 * one or two. A connection with more is ended, because each refusal alone takes 0.1 ms and 10 KiB.
 */
const fewCalls = 8;

/**
 * Limits the calls in progress over HTTP/2 on all TCP connections, because a connection may have 100 of them: each
 * takes memory before the client has sent a request. Clients of unix sockets are not limited, as in `AcceptLimit`.
 *
 * *Bound:* `max` calls. Each holds at most 16 KiB of headers, and 64 KiB of a request that is not complete.
 *
 * `serve` creates it, and the handler of `makeCallHandler` calls `enter` for each call over HTTP/2. Over HTTP/1.1 a
 * connection has one call. Separate from `QueryLimit`, which applies only to queries and answers those that it refuses.
 */
export class CallLimit {
  readonly #max: number;
  readonly #refusals: Refusals;
  /** Calls in progress and refused calls. */
  readonly #bySession = new WeakMap<Http2Session, number>();
  #open = 0;

  constructor(max: number, refusals: Refusals) {
    this.#max = max;
    this.#refusals = refusals;
  }

  /**
   * Counts a call until its stream closes. Returns false if the call is refused: its stream is closed with a code that
   * lets gRPC clients retry, or the connection is ended if it has many calls, or the call very large headers.
   *
   * `peer` is the address of the client, "" for a unix socket.
   */
  enter(stream: ServerHttp2Stream, rawHeaders: readonly string[], peer: string): boolean {
    const { session } = stream;
    // The rest of what was read with a call whose connection has ended.
    if (session === undefined || session.destroyed) {
      stream.destroy();
      return false;
    }
    if (peer === "") return true;
    const isLarge = rawHeaders.reduce((sum, { length }) => sum + length, 0) > maxHeaderBytes;
    const count = this.#bySession.get(session) ?? 0;
    if (!isLarge && this.#open < this.#max) {
      this.#add(session, 1);
      stream.once("close", () => this.#add(session, -1));
      return true;
    }
    this.#refusals.add(isLarge ? "headers" : "calls", peer);
    if (isLarge || count > fewCalls) session.destroy();
    else {
      this.#bySession.set(session, count + 1);
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      // Closing waits for the rest of the request, which nothing reads.
      stream.destroy();
    }
    return false;
  }

  #add(session: Http2Session, change: number): void {
    this.#open += change;
    this.#bySession.set(session, (this.#bySession.get(session) ?? 0) + change);
  }
}
