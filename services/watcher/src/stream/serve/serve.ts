import { createServer as createHttp1Server, type Server as Http1Server, IncomingMessage } from "node:http";
import { createServer as createHttp2Server, createSecureServer, type ServerHttp2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import { type TLSSocket, Server as TlsServer } from "node:tls";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Log } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { minTlsVersion, type ReadTls, type ServerTlsFiles } from "@kpng/process/tls-files.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Registry } from "prom-client";
import { AcceptLimit } from "../../connection/accept-limit.ts";
import type { ConnectionLimits } from "../../connection/connection-limits.ts";
import { Connections } from "../../connection/connections.ts";
import { defaultLimits, readResources } from "../../connection/default-limits.ts";
import { standardPingMs } from "../../connection/keepalive.ts";
import { listen } from "../../connection/listen.ts";
import { type ListenAddress, parseListenAddress } from "../../connection/listen-address.ts";
import { OneAtATime } from "../../connection/one-at-a-time.ts";
import { QueryLimit } from "../../connection/query-limit.ts";
import { Refusals } from "../../connection/refusals.ts";
import { sniffHttp } from "../../connection/sniff-http.ts";
import { ClientRights } from "../../identity/client-rights.ts";
import { isLoopback, type Trust } from "../../identity/identify.ts";
import { webPageReason } from "../../identity/refuse-web-page.ts";
import type { TokenChecker } from "../../identity/token/token-checker.ts";
import { scheduler } from "../session/scheduler.ts";
import { StartLimits } from "../session/start-limits.ts";
import { admitCall } from "./admit-call.ts";
import { makeFastWatch } from "./fast-watch.ts";
import { formatPeer } from "./peer.ts";
import { isQuery, refuseQuery } from "./query.ts";
import { reloadTls, standardReloadMs } from "./reload-tls.ts";
import { type CallContext, makeRequestHandler, type ServerRequest, type ServerResponse } from "./request-handler.ts";
import { makeRoutes, type RoutesOptions } from "./routes.ts";

/**
 * Serves gRPC, gRPC-Web and Connect, over HTTP/2 and HTTP/1.1, on every address.
 *
 * When the signal aborts, the task becomes not ready, accepts no more connections, and drains the open ones one after
 * the other. The store must keep running until the task has resolved.
 *
 * Errors: BAD_OPTION from this call; LISTEN_FAILED from the task, which then serves no address.
 */
export function serveTask(options: ServeOptions): Task {
  const addresses = options.listen.map(parseListenAddress);
  return { name: part, run: (signal) => serve(addresses, options, signal) };
}

export interface ServeOptions extends RoutesOptions, ConnectionLimits, Trust {
  /** Listen addresses; see parseListenAddress. */
  readonly listen: readonly string[];
  readonly tls?: ReadTls<ServerTlsFiles> | undefined;
  /** Checks the tokens of calls over TLS, which then need no client certificate. Default: tokens are ignored. */
  readonly tokens?: TokenChecker | undefined;
  /** Interval between two reads of the TLS files, in milliseconds. Default 10 000. */
  readonly reloadMs?: number | undefined;
  /** See StartLimitsOptions. */
  readonly maxWaiting?: number | undefined;
  /** Registry for the metrics of connections and waiting streams. Default none. */
  readonly registry?: Registry | undefined;
  readonly log: Log;
  /** Called once, when all addresses are open, with addresses that clients can dial (port 0 is resolved). */
  readonly onListening?: ((addresses: readonly string[]) => void) | undefined;
}

/** Maximum size of a request, in bytes. The largest requests contain digests. */
const maxRequestBytes = 64 * 1024;

/** Maximum number of concurrent streams of one connection. A relay or a load test may need many, but not thousands. */
const maxStreamsPerConnection = 1_000;

/** Maximum time for open calls to end after the stop and the drain, in milliseconds. */
const stopGraceMs = 1_000;

/** Name of this task, and of its part in the process's health. */
const part = "stream";

async function serve(addresses: readonly ListenAddress[], options: ServeOptions, signal: AbortSignal): Promise<void> {
  const stop = new AbortController();
  const { health, log, registry = new Registry(), maxWaiting, drainMs } = options;
  const refusals = new Refusals(log, registry);
  const connections = new Connections(options, log, registry, refusals);
  const clientRights = new ClientRights(options);
  const defaults = defaultLimits(readResources(), options.tls !== undefined);
  const { maxConnections, maxConnectionsPerAddress = 0, maxQueries, maxQueriesPerConnection } = options;
  const accepts = new AcceptLimit(maxConnections || defaults.maxConnections, maxConnectionsPerAddress, refusals);
  const queries = new QueryLimit(
    maxQueries || defaults.maxQueries,
    maxQueriesPerConnection || defaults.maxQueriesPerConnection,
    refusals,
  );
  const context: RoutesOptions = { ...options, startLimits: new StartLimits({ registry, maxWaiting }) };
  const handle = makeHandler({ ...options, ...context }, { connections, clientRights, queries, refusals }, stop.signal);
  const http1 = createHttp1Server(handle);
  connections.clock.start();
  options.store.currency.observe(({ kind }) => {
    if (kind === "stale") connections.moveAll();
  });
  options.tokens?.start();
  const servers: Server[] = [];
  try {
    const dialable: string[] = [];
    for (const address of addresses) {
      const server = makeServer(address, options, { connections, clientRights, http1, handle });
      if (address.kind !== "unix") accepts.attach(server);
      server.on("connection", () => scheduler.connected());
      dialable.push(await listen(server, address, () => refusals.add("files", "")));
      servers.push(server);
    }
    if (options.tls !== undefined) {
      const { clock } = connections;
      const secure = servers.filter((server) => server instanceof TlsServer);
      const onNewCa = (): void => connections.leaveForNewCa();
      reloadTls(options.tls, {
        servers: secure,
        clock,
        intervalMs: options.reloadMs ?? standardReloadMs,
        onNewCa,
        log,
      });
    }
    log.info("listening", { addresses: dialable });
    warnOfRefusal(addresses, options);
    options.onListening?.(dialable);
    await aborted(signal);
    health.setWaiting(part, "the watcher stops");
    for (const server of servers) server.close();
    if (drainMs !== 0) await connections.drain();
  } finally {
    for (const server of servers) server.close();
    stop.abort(new ConnectError("the watcher stops", Code.Unavailable));
    connections.closeAll();
    await connections.gone(AbortSignal.timeout(stopGraceMs));
    connections.destroyAll();
    connections.clock.stop();
    options.tokens?.stop();
  }
}

/** Logs the addresses whose clients can prove no identity, and are therefore refused. */
function warnOfRefusal(addresses: readonly ListenAddress[], { tls, allowsAnonymous, log }: ServeOptions): void {
  if (tls !== undefined || allowsAnonymous === true) return;
  for (const address of addresses) {
    if (address.kind === "unix" || isLoopback(address.host ?? "") || address.host === "localhost") continue;
    const remedy = "serve TLS with --listen-tls-key, or allow every client with --allow-anonymous";
    log.error("clients on other machines are refused: without TLS they cannot prove who they are", {
      address: `tcp://${address.host ?? ""}:${address.port}`,
      remedy,
    });
  }
}

type Handler = ReturnType<typeof makeHandler>;

function makeHandler(
  options: ServeOptions,
  { connections, clientRights, queries, refusals }: Bounds,
  stop: AbortSignal,
) {
  const { hasLocalApi = true, hasGlobalApi = true, log } = options;
  const pingMs = options.keepalive?.intervalMs ?? standardPingMs;
  const watchFast = makeFastWatch({ ...options, hasLocalApi, hasGlobalApi, maxRequestBytes, pingMs }, stop);
  const route = makeRequestHandler({
    log,
    routes: makeRoutes(options, stop),
    readMaxBytes: maxRequestBytes,
    shutdownSignal: stop,
    // With small messages and many readers, compression of each stream would cost eight times the CPU.
    acceptCompression: [],
  });
  const start = (request: ServerRequest, response: ServerResponse): void => {
    const call = { leave: connections.began(request, response), rights: clientRights.of(carrierOf(request)) };
    admitCall({ request, response, call }, options.tokens, (admitted) => begin(request, response, admitted));
  };
  const begin = (request: ServerRequest, response: ServerResponse, call: CallContext): void => {
    if (watchFast(request, response, call)) return;
    if (isQuery(request.url)) {
      const connection = carrierOf(request);
      const exit = queries.enter(connection ?? request, formatPeer(request.socket));
      if (exit === undefined) {
        refuseQuery(request, response);
        return;
      }
      response.once("close", exit);
    }
    route(request, response, call);
  };
  const http1Calls = new OneAtATime();
  return (request: ServerRequest, response: ServerResponse): void => {
    if (!(request instanceof IncomingMessage)) {
      start(request, response);
      return;
    }
    const onFlood = (): void => refusals.add("pipelined", formatPeer(request.socket));
    const startOne = (): void => (isFromWebPage(request, response, log) ? undefined : start(request, response));
    http1Calls.add(request, response, startOne, onFlood);
  };
}

/** Refuses a call over loopback that a web page made the browser send. */
function isFromWebPage({ socket, headers }: IncomingMessage, response: ServerResponse, log: Log): boolean {
  if (!isLoopback(socket.remoteAddress ?? "")) return false;
  const reason = webPageReason(headers.host, headers.origin);
  if (reason === undefined) return false;
  log.info("call refused", { peer: formatPeer(socket), reason });
  response.writeHead(403, { "content-type": "text/plain", connection: "close" });
  response.end(`${reason}\n`);
  return true;
}

/** Returns the session of a call over HTTP/2, the socket of one over HTTP/1.1. */
function carrierOf(request: ServerRequest): object | undefined {
  return request instanceof IncomingMessage ? request.socket : request.stream.session;
}

interface Bounds {
  readonly connections: Connections;
  readonly clientRights: ClientRights;
  readonly queries: QueryLimit;
  readonly refusals: Refusals;
}

interface Parts {
  readonly connections: Connections;
  readonly clientRights: ClientRights;
  readonly http1: Http1Server;
  readonly handle: Handler;
}

function makeServer(address: ListenAddress, options: ServeOptions, parts: Parts): Server {
  const { connections, clientRights, http1, handle } = parts;
  const { tls, log, firstBytesMs = 10_000 } = options;
  const settings = { maxConcurrentStreams: maxStreamsPerConnection };
  const isUnix = address.kind === "unix";
  // Clients on the same machine have no other replica, so their connections have no maximum age.
  const hasAge = !isUnix;
  const addHttp1 = (socket: Socket): void => {
    clientRights.add(socket, isUnix);
    connections.addHttp1(socket, hasAge);
  };
  const files = tls?.();
  const http2 = files
    ? createSecureServer(
        {
          ...files,
          // With tokens, a client may have no certificate; one of another CA gives no rights. Without a CA of our own,
          // Node.js would trust certificates of the public ones.
          requestCert: files.ca !== undefined,
          rejectUnauthorized: options.tokens === undefined,
          minVersion: minTlsVersion,
          allowHTTP1: true,
          // With a margin: this Node.js timer also counts time in which the event loop is blocked.
          handshakeTimeout: 3 * firstBytesMs,
          settings,
        },
        handle,
      )
    : createHttp2Server({ settings }, handle);
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
