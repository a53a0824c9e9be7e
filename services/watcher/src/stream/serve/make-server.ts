import type { Server as Http1Server } from "node:http";
import { createServer as createHttp2Server, createSecureServer, type ServerHttp2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { minTlsVersion } from "@kpng/process/tls-files.ts";
import type { Connections } from "../../connection/connections.ts";
import type { ListenAddress } from "../../connection/listen-address.ts";
import { sniffHttp } from "../../connection/sniff-http.ts";
import type { ClientRights } from "../../identity/client-rights.ts";
import type { CallHandler } from "./call-handler.ts";
import type { ServeOptions } from "./serve-options.ts";

/**
 * Maximum number of concurrent streams of one connection: the least that RFC 9113 recommends. A node or a relay needs
 * one or two, and a query up to 32. nghttp2 refuses further ones before Node.js creates objects for them, so it also
 * limits what one read of a hostile client can make.
 */
const maxStreamsPerConnection = 100;

/**
 * Calls that a client may cancel at once on a connection (CVE-2023-44487), and per second after that. Node.js ignores
 * one without the other: it would allow 1000 at once.
 */
const resetLimit = { streamResetBurst: 100, streamResetRate: 33 };

/**
 * Returns the server of one address, not yet listening: HTTP/2 and HTTP/1.1 on one port, with TLS or without. It adds
 * each connection to `connections` and `clientRights`.
 *
 * `serve` calls it for each address of `--listen`. Separate from `serve`, because it alone decides which protocols a
 * port speaks.
 */
export function makeServer(address: ListenAddress, options: ServeOptions, parts: ServerParts): Server {
  const { connections, clientRights, http1, handle } = parts;
  const { tls, log, firstBytesMs = 10_000 } = options;
  const limits = { settings: { maxConcurrentStreams: maxStreamsPerConnection }, ...resetLimit };
  const isUnix = address.kind === "unix";
  // A client on the unix socket has no other replica to move to, so its connection has no maximum age.
  const hasAge = !isUnix;
  const addHttp1 = (socket: Socket): void => {
    clientRights.add(socket, isUnix);
    connections.addHttp1(socket, hasAge);
  };
  // File permissions protect a unix socket, and its clients do not speak TLS.
  const files = isUnix ? undefined : tls?.();
  const http2 = files
    ? createSecureServer(
        {
          ...files,
          // With tokens, a client may have no certificate; a certificate of another CA gives no rights. Without a CA of
          // our own, Node.js would trust certificates of the public ones.
          requestCert: files.ca !== undefined,
          rejectUnauthorized: options.tokens === undefined,
          minVersion: minTlsVersion,
          allowHTTP1: true,
          // With a margin: this Node.js timer also counts time in which the event loop is blocked.
          handshakeTimeout: 3 * firstBytesMs,
          ...limits,
        },
        handle,
      )
    : createHttp2Server(limits, handle);
  // The client only sees a closed connection, so the reason is logged. Port scanners cause ECONNRESET.
  http2.on("tlsClientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const level = error.code === "ECONNRESET" ? "debug" : "info";
    log[level]("TLS client refused", { peer: socket.remoteAddress, reason: error.message.trim() });
  });
  http2.on("session", (session: ServerHttp2Session) => {
    clientRights.add(session, isUnix);
    connections.addSession(session, hasAge);
  });
  if (files) {
    http2.prependListener("connection", (socket: Socket) => connections.beganHandshake(socket));
    http2.prependListener("secureConnection", (socket: TLSSocket) => connections.endedHandshake(socket));
    http2.on("secureConnection", (socket: TLSSocket) => {
      if (socket.alpnProtocol !== "h2") addHttp1(socket);
    });
    return http2;
  }
  return sniffHttp({
    http2,
    toHttp1: (socket) => {
      addHttp1(socket);
      http1.emit("connection", socket);
    },
    clock: connections.clock,
    firstBytesMs,
  });
}

/** Parts that all servers of a watcher share. */
export interface ServerParts {
  readonly connections: Connections;
  readonly clientRights: ClientRights;
  readonly http1: Http1Server;
  readonly handle: CallHandler;
}
