import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

/** Requests of one connection that may wait, which is more than browsers and proxies ever send ahead. */
const maxWaiting = 1_000;

/** Requests of all connections that may wait. With its parsed headers, a request takes about 4 KiB. */
const maxWaitingInAll = 10_000;

/**
 * Starts the calls of an HTTP/1.1 connection one after the other. Node.js itself starts all pipelined requests at once.
 *
 * While a request waits, the socket is not read. `onFlood` is called for a connection with more requests than may wait.
 *
 * *Bound:* 1 000 requests per connection, usually only those in the 64 KiB that were read with the current one, and
 * 10 000 in all.
 *
 * The handler of `makeCallHandler` starts all calls over HTTP/1.1 with it. Separate from that handler, which treats
 * calls of both protocols alike: HTTP/2 has its own limit of concurrent calls.
 */
export class OneAtATime {
  readonly #waiting = new WeakMap<Socket, (() => void)[]>();
  /** Connections whose requests have waited, and whose end releases those that still wait. */
  readonly #pipelining = new WeakSet<Socket>();
  #waitingCount = 0;

  /** Runs `start` now or when the previous call of the connection has ended. */
  add(
    { socket }: IncomingMessage,
    response: { once(event: "close", listener: () => void): unknown },
    start: () => void,
    onFlood: () => void,
  ): void {
    if (socket.destroyed) return;
    const run = (): void => {
      start();
      // After the listeners of the call, so that it no longer counts when the next one starts.
      response.once("close", () => this.#next(socket));
    };
    const waiting = this.#waiting.get(socket);
    if (waiting === undefined) {
      this.#waiting.set(socket, []);
      run();
    } else if (waiting.length < maxWaiting && this.#waitingCount < maxWaitingInAll) {
      this.#waitingCount += 1;
      waiting.push(run);
      socket.pause();
      if (this.#pipelining.has(socket)) return;
      this.#pipelining.add(socket);
      socket.once("close", () => this.#forget(socket));
    } else {
      this.#forget(socket);
      onFlood();
      socket.destroy();
    }
  }

  #forget(socket: Socket): void {
    const waiting = this.#waiting.get(socket) ?? [];
    this.#waitingCount -= waiting.length;
    waiting.length = 0;
  }

  #next(socket: Socket): void {
    const waiting = this.#waiting.get(socket);
    const next = waiting?.shift();
    if (next !== undefined) this.#waitingCount -= 1;
    if (next === undefined || socket.destroyed) {
      this.#waiting.delete(socket);
      return;
    }
    // The rest of the last request may not have been read yet.
    if (waiting?.length === 0) socket.resume();
    next();
  }
}
