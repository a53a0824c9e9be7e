import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { Code } from "@connectrpc/connect";
import type { ReadTls, ServerTlsFiles } from "@kpng/process/credential-files.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Registry } from "prom-client";
import { type Admission, classOf, isAnsweredWhenRefused, nodeOf } from "../../connection/admission.ts";
import { type Connections, type ConnectionTimes, standardPingMs } from "../../connection/connections.ts";
import type { ClientLimits, Refusals } from "../../connection/limits.ts";
import type { ClientRights, Trust } from "../../identity/client-rights.ts";
import { joinRights, type Rights, type TokenProblem } from "../../identity/rights.ts";
import type { CheckedToken, TokenChecker } from "../../identity/token-checker.ts";
import { type Call, formatPeer } from "./call.ts";
import { makeConnectHandler } from "./connect-handler.ts";
import { makeFastWatch } from "./fast-watch.ts";
import { makeRoutes, type RoutesOptions } from "./routes.ts";

/** Options of `serveTask`. */
export interface ServeOptions extends RoutesOptions, ClientLimits, ConnectionTimes, Trust {
  /** Listen addresses; see parseListenAddress. */
  readonly listen: readonly string[];
  readonly tls?: ReadTls<ServerTlsFiles> | undefined;
  /** Checks the tokens of calls over TLS, which then need no client certificate. Default: tokens are ignored. */
  readonly tokens?: TokenChecker | undefined;
  /** Interval between two reads of the TLS files, in milliseconds. Default 10 000. */
  readonly reloadMs?: number | undefined;
  /** Maximum number of streams of each kind that wait for their first batch; 0 for no limit. Default: by the memory. */
  readonly maxWaiting?: number | undefined;
  /** Registry for the metrics of connections and waiting streams. Default none. */
  readonly registry?: Registry | undefined;
  readonly log: Log;
  /** Called once, when all addresses are open, with addresses that clients can dial (port 0 is resolved). */
  readonly onListening?: ((addresses: readonly string[]) => void) | undefined;
}

/** Maximum size of a Watch request over gRPC, in bytes. */
const maxRequestBytes = 64 * 1024;

/**
 * Maximum size of a request that the Connect library decodes, in bytes. It decodes all of it at once: two or three
 * bytes may be a field that takes 2 µs. The largest contain digests: 11 KB as JSON.
 */
const maxDecodedBytes = 16 * 1024;

/**
 * Returns the function that handles every call, on every address: it finds the rights of the client, refuses calls
 * beyond a limit, and passes the others to `makeFastWatch` or the Connect library. Calls end when `stop` aborts.
 */
export function makeCallHandler(
  options: ServeOptions,
  { connections, clientRights, admission, refusals }: Bounds,
  stop: AbortSignal,
) {
  const { hasLocalApi = true, hasGlobalApi = true, log, tokens } = options;
  const pingMs = options.keepalive?.intervalMs ?? standardPingMs;
  const watchFast = makeFastWatch({ ...options, hasLocalApi, hasGlobalApi, maxRequestBytes, admission, pingMs }, stop);
  const route = makeConnectHandler({
    log,
    routes: makeRoutes(options, stop),
    readMaxBytes: maxDecodedBytes,
    shutdownSignal: stop,
    // Browsers use the status page.
    grpcWeb: false,
    // With small messages and many readers, compression of each stream would cost eight times the CPU.
    acceptCompression: [],
  });
  const start = (request: Http2ServerRequest, response: Http2ServerResponse): void => {
    const { stream } = request;
    const peer = formatPeer(request.socket);
    if (peer !== "" && isFromBrowser(request)) {
      refusals.add("web-page", peer);
      response.writeHead(403, { "content-type": "text/plain" });
      response.end("browsers may not use this port: they use the status page\n");
      // Discards the request.
      request.resume();
      return;
    }
    const carrier = stream.session;
    const rights = clientRights.of(carrier);
    const isUnproven = mayCheckToken(request, rights, tokens);
    const first = isUnproven ? "unproven" : classOf(request.url, rights);
    const refuse = (callClass: typeof first): void => {
      if (isAnsweredWhenRefused(callClass)) refuseCall(request, response);
      else admission.refuse(stream);
    };
    const slot = admission.enter(first, carrier ?? request, peer, nodeOf(rights));
    if (slot === undefined) {
      refuse(first);
      return;
    }
    stream.once("close", slot.leave);
    admitCall({ request, response, rights, leave: connections.began(stream) }, tokens, (call) => {
      const callClass = classOf(request.url, call.rights);
      if (!slot.move(callClass, nodeOf(call.rights))) refuse(callClass);
      else if (!watchFast(call)) route(call);
    });
  };
  return (request: Http2ServerRequest, response: Http2ServerResponse): void =>
    admission.pace(request.stream, request.rawHeaders, formatPeer(request.socket), () => start(request, response));
}

/** Handler of all calls. */
export type CallHandler = ReturnType<typeof makeCallHandler>;

/** Parts of the server that know its open connections, and its limits. */
interface Bounds {
  readonly connections: Connections;
  readonly clientRights: ClientRights;
  readonly admission: Admission;
  readonly refusals: Refusals;
}

/**
 * True for a call of a browser, which a web page made it send: with a name of its own that resolves to this address (DNS
 * rebinding), the page could read the answers. Other clients send neither header.
 */
function isFromBrowser({ headers }: Http2ServerRequest): boolean {
  return headers.origin !== undefined || headers["sec-fetch-site"] !== undefined;
}

/** Answers a call beyond a limit with RESOURCE_EXHAUSTED, without reading its request. */
function refuseCall(request: Http2ServerRequest, response: Http2ServerResponse): void {
  const message = "too many calls of this kind in progress; retry later";
  const type = request.headers["content-type"] ?? "";
  if (type.startsWith("application/grpc")) {
    response.setHeader("content-type", type);
    response.setHeader("grpc-status", String(Code.ResourceExhausted));
    response.setHeader("grpc-message", encodeURI(message));
    response.writeHead(200);
    response.end();
  } else {
    response.setHeader("content-type", "application/json");
    response.writeHead(429);
    response.end(JSON.stringify({ code: "resource_exhausted", message }));
  }
  // Discards the request.
  request.resume();
}

/**
 * Calls `begin` with the rights of a call: those of its connection, and those of the token that it carries. Without a
 * token, or with a known one, it does so at once; otherwise when the token has been checked, unless the client has
 * cancelled the call by then. A refused token adds no rights; if the service needs them, its error gives the reason.
 *
 * While it waits, nothing reads the request, so the stream keeps its data and its end. When the token expires or is
 * revoked, the signal `leave` of the call aborts with UNAUTHENTICATED.
 */
function admitCall(call: Call, tokens: TokenChecker | undefined, begin: (call: Call) => void): void {
  const { request } = call;
  const header = request.headers.authorization;
  if (tokens === undefined || header === undefined || !mayCheckToken(request, call.rights, tokens)) {
    begin(call);
    return;
  }
  const withProblem = (tokenProblem: TokenProblem): Call => ({ ...call, rights: { ...call.rights, tokenProblem } });
  const token = /^Bearer +(\S+)$/i.exec(header)?.[1];
  const problem = token === undefined ? "the header authorization has no bearer token" : secrecyProblem(request);
  if (token === undefined || problem !== undefined) {
    begin(withProblem({ code: Code.Unauthenticated, message: problem ?? "" }));
    return;
  }
  const admit = (result: CheckedToken): void =>
    begin(result.kind === "refused" ? withProblem(result.problem) : withToken(call, result));
  const result = tokens.check(token, request.socket.remoteAddress);
  if (result instanceof Promise) {
    result
      .then((checked) => {
        if (!isOver(request)) admit(checked);
      })
      // Without this, an error in one call would end the process.
      .catch(() => request.stream.destroy());
  } else admit(result);
}

/** True if a call has a token that may give it more rights than those of its connection. */
function mayCheckToken({ headers }: Http2ServerRequest, rights: Rights, tokens: TokenChecker | undefined): boolean {
  const hasEverything = rights.nodes === "all" && rights.hasState && rights.hasInspection;
  return tokens !== undefined && headers.authorization !== undefined && !hasEverything;
}

/** Returns why the token of a request is not secret; undefined over TLS. Over plain TCP, others may have read it. */
function secrecyProblem({ socket }: Http2ServerRequest): string | undefined {
  return "encrypted" in socket && socket.encrypted ? undefined : "a token is accepted over TLS only";
}

/** Returns the call with the rights of its token, whose end is also the end of the call. */
function withToken(call: Call, { token }: CheckedToken & { kind: "accepted" }): Call {
  const leaving = new AbortController();
  const removers = [token.ended, call.leave].map((signal) => {
    const leave = (): void => leaving.abort(signal.reason);
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    return () => signal.removeEventListener("abort", leave);
  });
  token.calls += 1;
  call.response.once("close", () => {
    token.calls -= 1;
    for (const remove of removers) remove();
  });
  return { ...call, rights: joinRights(call.rights, token.rights), leave: leaving.signal };
}

/** Returns true if the client cancelled the call, or the connection is closed. */
function isOver({ stream }: Http2ServerRequest): boolean {
  if (!stream.closed && !stream.destroyed && !stream.aborted) return false;
  // After a reset without an error, Node.js would wait for the end of the data, which is never read.
  stream.destroy();
  return true;
}
