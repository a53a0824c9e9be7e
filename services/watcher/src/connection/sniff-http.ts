import type { Http2Server } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import type { LoopClock } from "./loop-clock.ts";

/**
 * Returns a server that accepts HTTP/2 with prior knowledge (gRPC) and HTTP/1.1 (curl, browsers) on one port. It
 * detects the protocol by the first bytes of a connection, and passes the connection on. It ends connections whose
 * protocol is still unknown after `firstBytesMs`.
 *
 * `makeServer` calls it for every address without TLS. With TLS, ALPN negotiates the protocol, so this file is not
 * needed.
 */
export function sniffHttp({ http2, toHttp1, clock, firstBytesMs }: SniffOptions): Server {
  // HTTP/1.1 has no pings, so only TCP keep-alive detects a client that lost its power.
  return createServer({ keepAlive: true, keepAliveInitialDelay: 30_000 }, (socket) => {
    const cancel = clock.after(firstBytesMs, () => socket.destroy());
    socket.once("close", cancel);
    // Errors before the protocol is known are ignored: no call is affected.
    const ignore = (): void => undefined;
    socket.on("error", ignore);
    readPreface(socket, (first) => {
      cancel();
      socket.off("close", cancel);
      const isHttp2 = first.subarray(0, preface.length).equals(preface);
      socket.unshift(first);
      if (isHttp2) http2.emit("connection", socket);
      else toHttp1(socket);
      socket.off("error", ignore);
    });
  });
}

/** First bytes of every HTTP/2 connection (RFC 9113 §3.4). They are not a valid HTTP/1 request line. */
const preface = Buffer.from("PRI * HTTP/2.0");

/** Where detected connections are passed to. */
export interface SniffOptions {
  readonly http2: Http2Server;
  readonly toHttp1: (socket: Socket) => void;
  readonly clock: LoopClock;
  /** Longest time until the protocol is known, in milliseconds. */
  readonly firstBytesMs: number;
}

/** Calls back once with the received bytes, as soon as they decide whether they are the preface. */
function readPreface(socket: Socket, done: (first: Buffer) => void): void {
  let seen = Buffer.alloc(0);
  const read = (): void => {
    for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
      seen = Buffer.concat([seen, chunk]);
    }
    const isUndecided = seen.length < preface.length && preface.subarray(0, seen.length).equals(seen);
    if (isUndecided) return;
    socket.off("readable", read);
    done(seen);
  };
  socket.on("readable", read);
}
