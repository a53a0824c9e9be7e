import type { Server as Http1Server } from "node:http";
import type { Http2Server } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";

/** What every HTTP/2 connection begins with (RFC 9113 §3.4); no HTTP/1 request line can. */
const preface = Buffer.from("PRI * HTTP/2.0");

/** Longest time a new connection may take to show what it speaks, in milliseconds. */
const firstBytesMs = 10_000;

/**
 * One port for HTTP/2 with prior knowledge (gRPC) and HTTP/1.1 (curl, browsers): looks at the first bytes of each
 * connection and hands it to the server that speaks its language.
 *
 * Over TLS this is not needed: there ALPN says it.
 */
export function sniffHttp(http1: Http1Server, http2: Http2Server): Server {
  // The kernel's probes are all that finds out about a reader over HTTP/1.1 that lost its power: there are no pings.
  return createServer({ keepAlive: true, keepAliveInitialDelay: 30_000 }, (socket) => {
    socket.setTimeout(firstBytesMs, () => socket.destroy());
    // A connection that breaks before it has said anything concerns nobody.
    const ignore = (): void => undefined;
    socket.on("error", ignore);
    readPreface(socket, (first) => {
      socket.setTimeout(0);
      socket.removeAllListeners("timeout");
      const isHttp2 = first.subarray(0, preface.length).equals(preface);
      socket.unshift(first);
      (isHttp2 ? http2 : http1).emit("connection", socket);
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
