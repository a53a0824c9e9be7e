import { IncomingMessage } from "node:http";
import type { Log } from "@kpng/process/log.ts";
import type { Connections } from "../../connection/connections.ts";
import { standardPingMs } from "../../connection/keepalive.ts";
import { OneAtATime } from "../../connection/one-at-a-time.ts";
import type { QueryLimit } from "../../connection/query-limit.ts";
import type { Refusals } from "../../connection/refusals.ts";
import type { ClientRights } from "../../identity/client-rights.ts";
import { isLoopback } from "../../identity/identify.ts";
import { webPageReason } from "../../identity/refuse-web-page.ts";
import { admitCall } from "./admit-call.ts";
import { makeFastWatch } from "./fast-watch.ts";
import { formatPeer } from "./peer.ts";
import { isQuery, refuseQuery } from "./query.ts";
import { type CallContext, makeRequestHandler, type ServerRequest, type ServerResponse } from "./request-handler.ts";
import { makeRoutes } from "./routes.ts";
import type { ServeOptions } from "./serve-options.ts";

/** Maximum size of a request, in bytes. The largest requests contain digests. */
const maxRequestBytes = 64 * 1024;

/**
 * Returns the function that handles every call, on every address and in both versions of HTTP: it finds the rights of
 * the client, refuses what exceeds a limit, and passes the call to `makeFastWatch` or to the router. `serve` makes it
 * once, for all its servers.
 *
 * Calls of the handler end when `stop` aborts.
 */
export function makeCallHandler(
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
    if (options.page?.(request, response, call) !== true) route(request, response, call);
  };
  const http1Calls = new OneAtATime();
  return (request: ServerRequest, response: ServerResponse): void => {
    if (!(request instanceof IncomingMessage)) {
      start(request, response);
      return;
    }
    const onFlood = (): void => refusals.add("pipelined", formatPeer(request.socket));
    const startOne = (): void => {
      if (!refuseWebPage(request, response, log)) start(request, response);
    };
    http1Calls.add(request, response, startOne, onFlood);
  };
}

/** Refuses a call over loopback that a web page made the browser send; returns false for other calls. */
function refuseWebPage({ socket, headers }: IncomingMessage, response: ServerResponse, log: Log): boolean {
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

/** Handler of all calls. */
export type CallHandler = ReturnType<typeof makeCallHandler>;

/** Parts of the server that know its open connections, and its limits. */
export interface Bounds {
  readonly connections: Connections;
  readonly clientRights: ClientRights;
  readonly queries: QueryLimit;
  readonly refusals: Refusals;
}
