import type { Http2Server } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import type { LoopClock } from "./loop-clock.ts";

/** What every HTTP/2 connection begins with (RFC 9113 §3.4); no HTTP/1 request line can. */
const preface = Buffer.from("PRI * HTTP/2.0");

export interface SniffOptions {
  readonly http2: Http2Server;
  readonly toHttp1: (socket: Socket) => void;
  readonly clock: LoopClock;
  /** In milliseconds. */
  readonly firstBytesMs: number;
}

/**
 * One port for HTTP/2 with prior knowledge (gRPC) and HTTP/1.1 (curl, browsers): looks at the first bytes of each
 * connection and hands it to the server that speaks its language. One that does not show it within `firstBytesMs` is
 * ended.
 *
 * Over TLS this is not needed: there ALPN says it.
 */
export function sniffHttp({ http2, toHttp1, clock, firstBytesMs }: SniffOptions): Server {
  // The kernel's probes are all that finds out about a reader over HTTP/1.1 that lost its power: there are no pings.
  return createServer({ keepAlive: true, keepAliveInitialDelay: 30_000 }, (socket) => {
    const cancel = clock.after(firstBytesMs, () => socket.destroy());
    socket.once("close", cancel);
    // A connection that breaks before it has said anything concerns nobody.
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

/** Calls back once with all that has arrived, as soon as it is clear whether it is the preface. */
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
