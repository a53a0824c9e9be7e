import { IncomingMessage } from "node:http";
import { type Admission, type CallClass, classOf, isAnsweredWhenRefused, nodeOf } from "../../connection/admission.ts";
import type { Connections } from "../../connection/connections.ts";
import { standardPingMs } from "../../connection/keepalive.ts";
import { OneAtATime } from "../../connection/one-at-a-time.ts";
import type { Refusals } from "../../connection/refusals.ts";
import type { RequestMemory } from "../../connection/request-memory.ts";
import type { ClientRights } from "../../identity/client-rights.ts";
import { isLoopback } from "../../identity/client-rights.ts";
import { otherSiteReason, webPageReason } from "../../identity/refuse-web-page.ts";
import { admitCall, mayCheckToken } from "./admit-call.ts";
import { makeFastWatch } from "./fast-watch.ts";
import { formatPeer } from "./peer.ts";
import { isMethod, refuseCall } from "./refuse-call.ts";
import { type CallContext, makeRequestHandler, type ServerRequest, type ServerResponse } from "./request-handler.ts";
import { makeRoutes } from "./routes.ts";
import type { ServeOptions } from "./serve-options.ts";

/** Maximum size of a Watch request over gRPC, in bytes. The largest are reports of traffic. */
const maxRequestBytes = 64 * 1024;

/**
 * Maximum size of a request that the Connect library decodes, in bytes. It decodes all of it at once: two or three
 * bytes may be a field that takes 2 µs. The largest contain digests: 11 KB as JSON.
 */
const maxDecodedBytes = 16 * 1024;

/**
 * Returns the function that handles every call, on every address and in both versions of HTTP: it finds the rights of
 * the client, refuses calls beyond a limit, and passes the others to `makeFastWatch`, the status page or the router.
 * Calls of the handler end when `stop` aborts.
 *
 * `serve` makes it once, for all its servers. Separate from `serve`, which opens and closes addresses and sees no
 * calls.
 */
export function makeCallHandler(
  options: ServeOptions,
  { connections, clientRights, admission, requestMemory, refusals }: Bounds,
  stop: AbortSignal,
) {
  const { hasLocalApi = true, hasGlobalApi = true, log } = options;
  const pingMs = options.keepalive?.intervalMs ?? standardPingMs;
  const watchFast = makeFastWatch(
    { ...options, hasLocalApi, hasGlobalApi, maxRequestBytes, requestMemory, pingMs },
    stop,
  );
  const route = makeRequestHandler({
    log,
    routes: makeRoutes(options, stop),
    readMaxBytes: maxDecodedBytes,
    shutdownSignal: stop,
    // With small messages and many readers, compression of each stream would cost eight times the CPU.
    acceptCompression: [],
  });
  const refuse = (request: ServerRequest, response: ServerResponse, callClass: CallClass): void => {
    if (isAnsweredWhenRefused(callClass) || request instanceof IncomingMessage) refuseCall(request, response);
    else admission.refuse(request.stream);
  };
  const start = (request: ServerRequest, response: ServerResponse): void => {
    // Clients that are not browsers send no Origin. Browsers speak HTTP/2 over TLS only.
    const reason = request instanceof IncomingMessage || request.headers.origin ? pageReason(request) : undefined;
    if (reason !== undefined) {
      refuseWebPage(request, response, reason);
      return;
    }
    const carrier = carrierOf(request);
    const rights = clientRights.of(carrier);
    const isUnproven = mayCheckToken(request, rights, options.tokens);
    const first = isUnproven ? "unproven" : classOf(request.url, rights);
    const slot = admission.enter(first, carrier ?? request, formatPeer(request.socket), nodeOf(rights));
    if (slot === undefined) {
      refuse(request, response, first);
      return;
    }
    (request instanceof IncomingMessage ? response : request.stream).once("close", slot.leave);
    const call = { leave: connections.began(request, response), rights };
    admitCall({ request, response, call }, options.tokens, (admitted) => {
      const callClass = classOf(request.url, admitted.rights);
      if (slot.move(callClass, nodeOf(admitted.rights))) begin(request, response, admitted);
      else refuse(request, response, callClass);
    });
  };
  const begin = (request: ServerRequest, response: ServerResponse, call: CallContext): void => {
    if (watchFast(request, response, call)) return;
    // The status page decides about its own addresses.
    const reason = isMethod(request.url) ? otherSiteReason(request.headers, false) : undefined;
    if (reason !== undefined) {
      refuseWebPage(request, response, reason);
      return;
    }
    if (options.page?.(request, response, call, { refusals, log }) !== true) route(request, response, call);
  };
  const refuseWebPage = (request: ServerRequest, response: ServerResponse, reason: string): void => {
    refusals.add("web-page", formatPeer(request.socket), { reason });
    response.writeHead(403, { "content-type": "text/plain" });
    response.end(`${reason}\n`);
    // Discards the request; otherwise, an HTTP/1.1 connection could not take another one.
    request.resume();
  };
  const http1Calls = new OneAtATime();
  return (request: ServerRequest, response: ServerResponse): void => {
    if (!(request instanceof IncomingMessage)) {
      admission.pace(request.stream, request.rawHeaders, formatPeer(request.socket), () => start(request, response));
      return;
    }
    const onFlood = (): void => refusals.add("pipelined", formatPeer(request.socket));
    const startOne = (): void => {
      if (pageReason(request) !== undefined) response.setHeader("connection", "close");
      start(request, response);
    };
    http1Calls.add(request, response, startOne, onFlood);
  };
}

/** Returns why a call over TCP is refused, because a web page made the browser send it; undefined for others. */
function pageReason({ socket, headers }: ServerRequest): string | undefined {
  const { remoteAddress } = socket;
  if (remoteAddress === undefined) return undefined;
  const isNamed = "encrypted" in socket && socket.encrypted === true;
  const { host = headers[":authority"], origin } = headers;
  return webPageReason(host?.toString(), origin, { isNamed, isCluster: !isLoopback(remoteAddress) });
}

/** Returns the session of a call over HTTP/2, the socket of one over HTTP/1.1. */
function carrierOf(request: ServerRequest): object | undefined {
  return request instanceof IncomingMessage ? request.socket : request.stream.session;
}

/** Handler of all calls. */
export type CallHandler = ReturnType<typeof makeCallHandler>;

/** Parts of the server that know its open connections, and its limits. */
interface Bounds {
  readonly connections: Connections;
  readonly clientRights: ClientRights;
  readonly admission: Admission;
  readonly requestMemory: RequestMemory;
  readonly refusals: Refusals;
}
