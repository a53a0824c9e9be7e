import { type ClientHttp2Session, connect as connectSession } from "node:http2";
import { connect as connectSocket, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { Interceptor, Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { ReadToken } from "../credential-files.ts";
import { minTlsVersion, type TlsFiles } from "../credential-files.ts";
import { withoutCredentials } from "../log.ts";
import { ProcessError } from "../process-error.ts";

/** Address of a watcher. */
export type ApiAddress =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly isTls: boolean }
  | { readonly kind: "unix"; readonly path: string };

/** Default port of the watcher, as in KPNG. */
const standardApiPort = 12_090;

/**
 * Parses the value of `--api`.
 *
 * | text | meaning |
 * |---|---|
 * | `127.0.0.1:12090`, `[::1]:12090`, `watcher.kube-system:12090` | TCP; with TLS if TLS files are given |
 * | `watcher` | host with port 12090 |
 * | `tcp://host:port` | same as `host:port` |
 * | `http://host:port`, `https://host:port` | TCP without or with TLS |
 * | `unix:///run/kpng.sock`, `unix://kpng.sock` | unix socket; TLS files are not used |
 *
 * `shown` is the form of the address that error messages show. Errors: BAD_OPTION.
 */
export function parseApiAddress(text: string, hasTlsFiles: boolean, shown = withoutCredentials(text)): ApiAddress {
  const unix = /^unix:(?:\/\/)?(\/?[^/].*)$/.exec(text);
  if (unix?.[1] !== undefined) return { kind: "unix", path: unix[1] };
  const url = /^(tcp|https?):\/\/(.+?)\/?$/.exec(text);
  const hostPort = url?.[2] ?? text;
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?$/.exec(hostPort);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3] ?? standardApiPort);
  if (host === undefined || port < 1 || port > 65_535) {
    const hint = shown.includes("@")
      ? "a user name is not supported, watchers authenticate clients by certificate or token"
      : "write host:port, [IPv6]:port or unix:///path";
    throw new ProcessError("BAD_OPTION", `--api "${shown}" is not an address: ${hint}`);
  }
  if (url?.[1] === "http" && hasTlsFiles) {
    throw new ProcessError("BAD_OPTION", `--api "${shown}" disables TLS, but TLS files are given`);
  }
  return { kind: "tcp", host, port, isTls: url?.[1] === "https" || hasTlsFiles };
}

/** Address and limits of a connection to a watcher. */
export interface DialOptions {
  /** See {@link parseApiAddress}. */
  readonly api: string;
  /**
   * Returns the TLS files; called for each connection. `servername` is the name that the certificate must have;
   * default: the host in `api`.
   */
  readonly tls?: (() => TlsFiles & { readonly servername?: string }) | undefined;
  /** Returns the token to send; called for each RPC. Not allowed over plain TCP. */
  readonly token?: ReadToken | undefined;
  /** Maximum size of a received message, in bytes. Default 64 MiB. Source: KPNG's `--max-msg-size`. */
  readonly maxMessageBytes?: number | undefined;
  /**
   * Path of a unix socket that leads to the watcher and replaces its address. The process that opened the socket has
   * chosen the watcher, so a certificate from the CA is accepted whatever its name. Ignored without TLS.
   */
  readonly tunnel?: string | undefined;
  /** Maximum time for the TCP connection and the TLS handshake, in milliseconds. Default 30 000. */
  readonly connectLimitMs?: number | undefined;
}

/** As long as a watcher gives a client for its TLS handshake, so that no client gives up before a busy watcher does. */
const standardConnectLimitMs = 30_000;

/**
 * Returns a gRPC transport to a watcher. The transport connects when it is first used, and reconnects after a
 * connection loss. Errors: BAD_OPTION, also for a token over plain TCP.
 */
export function dial(options: DialOptions): Transport {
  const { api, tls, token, maxMessageBytes = 64 * 1024 * 1024 } = options;
  const address = parseApiAddress(api, tls !== undefined);
  if (token !== undefined) checkSecrecy(address, api);
  const silence = new SilenceLimit();
  const transport = createGrpcTransport({
    baseUrl: baseUrlOf(address),
    readMaxBytes: maxMessageBytes,
    // Drop unknown fields: they are never used, and the protobuf library needs 50 times their size.
    binaryOptions: { readUnknownFields: false },
    // Compression would cost the watcher CPU for every message to every node.
    acceptCompression: [],
    interceptors: token === undefined ? [] : [sendToken(token)],
    // A watcher that loses power does not close its connections; TCP keepalive or an unanswered ping detects that.
    // Pings are rare, because a Go server closes a connection that sends more than one ping in five minutes. Our
    // watchers ping their clients instead; see SilenceLimit.
    pingIntervalMs: 330_000,
    pingTimeoutMs: 20_000,
    nodeOptions: { createConnection: () => silence.watch(openSocket(address, options)) },
  });
  return {
    unary: (...call) => transport.unary(...call),
    async stream(...call) {
      const response = await transport.stream(...call);
      silence.expect(response.header.get(pingHeader));
      return response;
    },
  };
}

/** An HTTP/2 connection to a watcher, and the headers that each call must send. */
export interface Http2Connection {
  readonly session: ClientHttp2Session;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Opens an HTTP/2 connection to a watcher, for a client that reads messages itself. `windowBytes` is the receive window
 * of the connection and of each stream. Connection failures are errors of the session. Errors: as for {@link dial}.
 */
export function connectHttp2(options: DialOptions, windowBytes?: number): Http2Connection {
  const { api, tls, token } = options;
  const address = parseApiAddress(api, tls !== undefined);
  if (token !== undefined) checkSecrecy(address, api);
  const settings = windowBytes === undefined ? {} : { initialWindowSize: windowBytes };
  const session = connectSession(baseUrlOf(address), {
    settings,
    createConnection: () => openSocket(address, options),
  });
  if (windowBytes !== undefined) session.once("connect", () => session.setLocalWindowSize(windowBytes));
  return { session, headers: token === undefined ? {} : { authorization: `Bearer ${token()}` } };
}

/** Refuses to send a token over plain TCP, where anyone on the network path could read it. Errors: BAD_OPTION. */
export function checkSecrecy(address: ApiAddress, shown: string): void {
  if (address.kind === "unix" || address.isTls) return;
  const remedy = "use https:// with TLS files, or a unix socket";
  const text = `--api "${withoutCredentials(shown)}" is plain TCP, which would reveal the token: ${remedy}`;
  throw new ProcessError("BAD_OPTION", text);
}

function sendToken(token: ReadToken): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token()}`);
    return next(request);
  };
}

/** Returns the URL of a watcher. *Shape:* `https://10.0.0.7:12090`. */
function baseUrlOf(address: ApiAddress): string {
  if (address.kind === "unix") return "http://localhost";
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return `${address.isTls ? "https" : "http"}://${host}:${address.port}`;
}

/**
 * Opens a connection to a watcher, with TLS for HTTP/2 if the address says so. The socket fails after `connectLimitMs`:
 * HTTP/2 pings start only after the handshake, and the kernel keeps a connection to a silent listener forever.
 */
function openSocket(address: ApiAddress, options: DialOptions): Socket {
  if (address.kind === "unix") return connectSocket(address.path);
  const { tls, tunnel, connectLimitMs = standardConnectLimitMs } = options;
  const { host, port } = address;
  // SNI allows only host names, not addresses (RFC 6066 §3).
  const serverName = isIP(host) === 0 ? { servername: host } : {};
  const to = tunnel === undefined ? { host, port } : { path: tunnel, checkServerIdentity: () => undefined };
  // The TLS files come last, because their `servername` takes precedence.
  const socket = address.isTls
    ? connectTls({ ...to, ALPNProtocols: ["h2"], minVersion: minTlsVersion, ...serverName, ...tls?.() })
    : connectSocket({ host, port });
  const timer = setTimeout(() => {
    const late = new Error(`no connection to ${baseUrlOf(address)} within ${connectLimitMs} ms`);
    // The same code as for the kernel's own limit.
    socket.destroy(Object.assign(late, { code: "ETIMEDOUT" }));
  }, connectLimitMs).unref();
  const stop = (): void => clearTimeout(timer);
  socket.once(address.isTls ? "secureConnect" : "connect", stop).once("close", stop);
  return socket.setKeepAlive(true, 30_000);
}

/** Response header in which a watcher announces the interval of its pings, in milliseconds. */
export const pingHeader = "kpng-ping-ms";

/** Number of missing pings after which a connection is closed. */
const missingPings = 3;

/** Number of checks of the sockets per ping interval. */
const checksPerPing = 2;

/**
 * Closes connections on which the peer's announced pings no longer arrive.
 *
 * TCP keepalive alone is too slow if the peer's machine loses power before it has acknowledged sent data: the kernel
 * then retransmits for a quarter of an hour before its keepalive probes start.
 *
 * The limit counts checks, not time, because after a pause of the event loop the sockets are read before the next
 * check.
 */
class SilenceLimit {
  /** For each socket, the bytes read at the last check, and the number of checks since that value last changed. */
  readonly #sockets = new Map<Socket, { bytesRead: number; unchangedChecks: number }>();
  /** Undefined if there is no limit. */
  #pingMs: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Watches a socket until it closes; returns the same socket. */
  watch<S extends Socket>(socket: S): S {
    this.#sockets.set(socket, { bytesRead: 0, unchangedChecks: 0 });
    if (this.#sockets.size === 1) this.#restart();
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) clearInterval(this.#timer);
    });
    return socket;
  }

  /**
   * Applies the peer's {@link pingHeader}, once for each stream. Without it, there is no limit: another watcher, which
   * sends no pings, may have taken the place of one that did. An invalid value is ignored.
   */
  expect(header: string | null): void {
    const pingMs = header === null ? undefined : Number(header);
    if (pingMs === this.#pingMs || (pingMs !== undefined && !(pingMs >= 1 && pingMs <= 3_600_000))) return;
    this.#pingMs = pingMs;
    this.#restart();
  }

  #restart(): void {
    clearInterval(this.#timer);
    const pingMs = this.#pingMs;
    if (pingMs !== undefined) this.#timer = setInterval(() => this.#check(pingMs), pingMs / checksPerPing).unref();
  }

  #check(pingMs: number): void {
    for (const [socket, seen] of this.#sockets) {
      if (socket.bytesRead !== seen.bytesRead) {
        seen.bytesRead = socket.bytesRead;
        seen.unchangedChecks = 0;
        continue;
      }
      seen.unchangedChecks++;
      if (seen.unchangedChecks <= missingPings * checksPerPing) continue;
      socket.destroy(new Error(`the peer was silent for ${missingPings} ping intervals of ${pingMs} ms`));
    }
  }
}
