import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { Rate } from "./rate.ts";
import type { Refusals } from "./refusals.ts";
import type { RequestMemory } from "./request-memory.ts";

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
 * Calls that a connection may begin at once, and then per second; further ones wait. A node or a relay begins one or
 * two. The pages of a long list are one call each, and proxies carry the calls of many clients on a connection.
 *
 * A call that ends at once takes 0.2 ms. A connection has at most 100 calls at a time, and `makeServer` limits how many
 * a client may cancel, so few calls wait, for a second or two.
 */
const [callBurst, callsPerSecond] = [100, 100];

/**
 * Maximum time that a call waits, in milliseconds: longer than 100 waiting calls take, and a connection has no more at
 * a time. Only a client that cancels waiting calls and begins others gets beyond it.
 */
const maxWaitMs = 1_200;

/**
 * Limits the calls in progress over HTTP/2 on all TCP connections, because a connection may have 100 of them: each
 * takes memory before the client has sent a request. Clients of unix sockets are not limited, as in `AcceptLimit`.
 *
 * *Bound:* `max` calls. Each holds at most 16 KiB of headers; `RequestMemory` limits what they hold of requests.
 *
 * `serve` creates it, and the handler of `makeCallHandler` calls `enter` for each call over HTTP/2. Over HTTP/1.1 a
 * connection has one call. Separate from `QueryLimit`, which applies only to queries and answers those that it refuses.
 */
export class CallLimit {
  readonly #max: number;
  readonly #refusals: Refusals;
  readonly #memory: RequestMemory;
  readonly #bySession = new WeakMap<Http2Session, SessionCalls>();
  #open = 0;

  constructor(max: number, memory: RequestMemory, refusals: Refusals) {
    this.#max = max;
    this.#memory = memory;
    this.#refusals = refusals;
  }

  /**
   * Counts a call until its stream closes, and calls `begin`: now, or when the connection may begin another call.
   * `begin` is not called if the stream closes before, or if the call is refused: its stream is closed with a code that
   * lets gRPC clients retry, or the connection is ended if it has many calls, or the call has very large headers.
   *
   * `peer` is the address of the client, "" for a unix socket.
   */
  enter(stream: ServerHttp2Stream, rawHeaders: readonly string[], peer: string, begin: () => void): void {
    const { session } = stream;
    // The rest of what was read with a call whose connection has ended.
    if (session === undefined || session.destroyed) {
      stream.destroy();
      return;
    }
    if (peer === "") {
      begin();
      return;
    }
    const isLarge = rawHeaders.reduce((sum, { length }) => sum + length, 0) > maxHeaderBytes;
    const calls = this.#callsOf(session);
    const waitMs = calls.rate.add(1, performance.now());
    const isFast = waitMs > maxWaitMs;
    if (!isLarge && !isFast && this.#open < this.#max) {
      this.#open += 1;
      calls.count += 1;
      this.#memory.add(stream);
      const timer = waitMs > 0 ? setTimeout(begin, waitMs).unref() : undefined;
      stream.once("close", () => {
        this.#open -= 1;
        calls.count -= 1;
        clearTimeout(timer);
      });
      if (timer === undefined) begin();
      return;
    }
    this.#refusals.add(isLarge ? "headers" : isFast ? "call-rate" : "calls", peer);
    if (isLarge || isFast || calls.count > fewCalls) {
      // `destroy` alone would send NO_ERROR; with a code, it would report an error of the session.
      session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      session.destroy();
    } else {
      calls.count += 1;
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      // Closing waits for the rest of the request, which nothing reads.
      stream.destroy();
    }
  }

  #callsOf(session: Http2Session): SessionCalls {
    return getOrMake(this.#bySession, session, () => ({ count: 0, rate: new Rate(callBurst, callsPerSecond) }));
  }
}

/** The calls of a connection. */
interface SessionCalls {
  /** Calls in progress and refused calls. */
  count: number;
  /** Counts the calls that begin. */
  readonly rate: Rate;
}
