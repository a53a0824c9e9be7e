import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import { Code } from "@connectrpc/connect";
import type { ReadTls, ServerTlsFiles } from "@kpng/process/credential-files.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Registry } from "prom-client";
import {
  type Admission,
  type CallClass,
  classOf,
  isAnsweredWhenRefused,
  nodeOf,
  refuseStream,
} from "../../connection/admission.ts";
import { type Connections, type ConnectionTimes, standardPingMs } from "../../connection/connections.ts";
import type { ClientLimits, Refusals } from "../../connection/limits.ts";
import { joinRights, type ProofProblem, type Rights, type Trust } from "../../identity/rights.ts";
import type { CheckedToken, TokenChecker } from "../../identity/token-checker.ts";
import { type Call, formatPeer, makeConnectHandler } from "./connect-handler.ts";
import { makeGrpcWatch } from "./grpc-watch.ts";
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
  /** Registry for the connection metrics. Default: no metrics. */
  readonly registry?: Registry | undefined;
  readonly log: Log;
  /**
   * Called once, when the server listens on all addresses, with the addresses that clients can dial (port 0 is
   * resolved).
   */
  readonly onListening?: ((addresses: readonly string[]) => void) | undefined;
}

/** Maximum size of a request that the Connect library decodes, in bytes. A hostile request of this size takes 16 ms. */
const maxDecodedBytes = 16 * 1024;

/** Maximum size of the headers of a call, in bytes. Node.js allows 64 KiB; ServiceAccount tokens take 1 to 2 KiB. */
const maxHeaderBytes = 16 * 1024;

/**
 * Returns the handler of every call. It determines the client's rights, refuses calls beyond a limit, and passes the
 * others to `makeGrpcWatch` or the Connect library. `stop` ends only the calls of the library; a Watch call ends when
 * its connection asks it to leave.
 */
export function makeCallHandler(
  options: ServeOptions,
  { connections, admission, refusals }: Bounds,
  stop: AbortSignal,
): (request: Http2ServerRequest, response: Http2ServerResponse) => void {
  const { log, tokens, pingMs = standardPingMs } = options;
  const takeWatch = makeGrpcWatch({ ...options, refusals, admission, pingMs });
  const route = makeConnectHandler({
    log,
    routes: makeRoutes({ ...options, refusals }, stop),
    readMaxBytes: maxDecodedBytes,
    shutdownSignal: stop,
    // gRPC-Web would only serve browsers, which use the status page instead.
    grpcWeb: false,
    // With small messages and many readers, compressing each stream would take eight times as much CPU time.
    acceptCompression: [],
  });
  return (request, response) => {
    const { stream } = request;
    const connection = connections.began(stream);
    if (connection === undefined) {
      // The connection has ended; this call was read together with an earlier one.
      stream.destroy();
      return;
    }
    const { rights, session } = connection;
    const peer = formatPeer(request.socket);
    const isLarge = request.rawHeaders.reduce((sum, { length }) => sum + length, 0) > maxHeaderBytes;
    connection.callRate.add(1);
    if (peer !== "" && (isLarge || connection.callRate.pauseMs > 0)) {
      refusals.add(isLarge ? "headers" : "call-rate", peer);
      // `destroy` alone would send NO_ERROR; with a code, it would raise a session error.
      session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      session.destroy();
      return;
    }
    const refuse = (callClass: CallClass): void => {
      if (isAnsweredWhenRefused(callClass)) refuseCall(request, response);
      else refuseStream(stream);
    };
    const provisionalClass = mayCheckToken(request, rights, tokens) ? "unproven" : classOf(request.url, rights);
    const slot = admission.enter(provisionalClass, peer, nodeOf(rights));
    if (slot === undefined) {
      refuse(provisionalClass);
      return;
    }
    if (peer !== "") admission.countMemory(stream);
    stream.once("close", slot.leave);
    withTokenRights({ request, response, rights, leave: connection.leaving.signal }, tokens, (call) => {
      const callClass = classOf(request.url, call.rights);
      if (!slot.move(callClass, nodeOf(call.rights))) refuse(callClass);
      else if (!takeWatch(call, connection)) route(call);
    });
  };
}

export type CallHandler = ReturnType<typeof makeCallHandler>;

interface Bounds {
  readonly connections: Connections;
  readonly admission: Admission;
  readonly refusals: Refusals;
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
  // This discards the request.
  request.resume();
}

/**
 * Calls `begin` with the rights of the connection and of the call's token: immediately if the token is known, otherwise
 * once the token has been checked. Does not call it if the client cancels the call first. A refused token adds no
 * rights, only the reason for a later error. When the token expires or is revoked, the signal `leave` aborts with
 * UNAUTHENTICATED.
 *
 * Until `begin` is called, nothing reads the request; the stream buffers its data and its end.
 */
function withTokenRights(call: Call, tokens: TokenChecker | undefined, begin: (call: Call) => void): void {
  const { request } = call;
  const header = request.headers.authorization;
  if (tokens === undefined || header === undefined || !mayCheckToken(request, call.rights, tokens)) {
    begin(call);
    return;
  }
  const withProblem = (problem: ProofProblem): Call => ({ ...call, rights: { ...call.rights, problem } });
  const token = /^Bearer +(\S+)$/i.exec(header)?.[1];
  const problem = token === undefined ? "the header authorization has no bearer token" : secrecyProblem(request);
  if (token === undefined || problem !== undefined) {
    begin(withProblem({ code: Code.Unauthenticated, message: problem ?? "" }));
    return;
  }
  const { remoteAddress } = request.socket;
  const admit = (result: CheckedToken): void => {
    if (result.kind === "refused") begin(withProblem(result.problem));
    else {
      const leave = AbortSignal.any([tokens.follow(token, remoteAddress, request.stream), call.leave]);
      begin({ ...call, rights: joinRights(call.rights, result.rights), leave });
    }
  };
  const result = tokens.check(token, remoteAddress);
  if (result instanceof Promise) {
    result
      .then((checked) => {
        // A call that is over has left its slot, and must not take another one.
        if (!isOver(request)) admit(checked);
      })
      // Without this, an error in one call would end the process.
      .catch(() => request.stream.destroy());
  } else admit(result);
}

/** True if a call has a token and its connection does not already have every right. */
function mayCheckToken({ headers }: Http2ServerRequest, rights: Rights, tokens: TokenChecker | undefined): boolean {
  const hasEverything = rights.nodes === "all" && rights.hasState && rights.hasInspection;
  return tokens !== undefined && headers.authorization !== undefined && !hasEverything;
}

/**
 * Returns the reason for refusing the token without a check, because others may have read a token sent over plain TCP.
 */
function secrecyProblem({ socket }: Http2ServerRequest): string | undefined {
  return "encrypted" in socket && socket.encrypted ? undefined : "a token is accepted over TLS only";
}

/** True if the client has cancelled the call or its connection is closed. */
function isOver({ stream }: Http2ServerRequest): boolean {
  if (!stream.closed && !stream.destroyed && !stream.aborted) return false;
  // After a reset without an error, Node.js would wait for the end of the data, which is never read.
  stream.destroy();
  return true;
}
