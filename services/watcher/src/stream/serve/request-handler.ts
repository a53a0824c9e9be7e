import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  createConnectRouter,
  createContextValues,
} from "@connectrpc/connect";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Refusals } from "../../connection/refusals.ts";
import type { Rights } from "../../identity/rights.ts";
import { dropDistantDeadline } from "./grpc-timeout.ts";
import { LateJson, lateJsonKey } from "./late-json.ts";
import { leaveKey } from "./leave.ts";
import { formatPeer, peerKey, rightsKey } from "./peer.ts";

/**
 * Returns the handler of all requests that the Connect library answers, over HTTP/2 and HTTP/1.1.
 *
 * It replaces connectNodeAdapter because of the log: the adapter prints every client disconnect to the console, and
 * with thousands of nodes, clients disconnect all the time.
 *
 * `makeCallHandler` calls it once, and passes it every call that neither `makeFastWatch` nor the status page answers.
 * Separate from it, because this file only adapts the library and limits nothing.
 */
export function makeRequestHandler({ routes, log, ...options }: HandlerOptions) {
  const router = createConnectRouter(options);
  routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  return (request: ServerRequest, response: ServerResponse, { leave, rights }: CallContext): void => {
    const handler = handlers.get(request.url?.split("?", 1)[0] ?? "");
    if (handler === undefined) {
      response.writeHead(404);
      response.end();
      // Discards the request, which would stay in memory until the client ends it.
      request.resume();
      return;
    }
    const lateJson = request.headers["content-type"]?.includes("json") === true ? new LateJson() : undefined;
    const values = createContextValues()
      .set(peerKey, formatPeer(request.socket))
      .set(rightsKey, rights)
      .set(leaveKey, leave)
      .set(lateJsonKey, lateJson);
    let universal: UniversalServerRequest;
    try {
      universal = universalRequestFromNodeRequest(request, response, undefined, values);
    } catch (error) {
      // It throws for a request without a host (HTTP/1.0), or with an invalid one.
      log.debug("request refused: invalid host", { rpc: handler.requestPath, reason: reasonOf(error) });
      response.writeHead(400);
      response.end();
      request.resume();
      return;
    }
    dropDistantDeadline(universal.header);
    handler(universal)
      .then((answer) => universalResponseToNodeResponse(lateJson?.addTo(answer) ?? answer, response))
      .catch((error: unknown) => {
        const { code, rawMessage } = ConnectError.from(error);
        if (code !== Code.Aborted) log.debug("client disconnected", { rpc: handler.requestPath, reason: rawMessage });
      });
  };
}

/** A request over HTTP/1.1 or HTTP/2, as Node.js reports it. The Connect library does not export this type by name. */
export type ServerRequest = Parameters<typeof universalRequestFromNodeRequest>[0];
/** The response to a {@link ServerRequest}. */
export type ServerResponse = Parameters<typeof universalResponseToNodeResponse>[1];
type UniversalServerRequest = ReturnType<typeof universalRequestFromNodeRequest>;

/**
 * Answers requests for web pages. Returns false for other requests, which it leaves untouched. The handler of
 * `makeCallHandler` asks it before the services; `statusPage` returns it.
 */
export type PageHandler = (
  request: ServerRequest,
  response: ServerResponse,
  call: CallContext,
  reports: PageReports,
) => boolean;

/** The counter of refused requests, and the log, for a {@link PageHandler}. */
export interface PageReports {
  readonly refusals: Refusals;
  readonly log: Log;
}

/** Facts about a call that the server knows before it reads the request. */
export interface CallContext {
  /** Aborts when the client is asked to reconnect. */
  readonly leave: AbortSignal;
  readonly rights: Rights;
}

/** Options of `makeRequestHandler`: the services to register, the log, and options of the Connect library. */
interface HandlerOptions extends ConnectRouterOptions {
  readonly routes: (router: ConnectRouter) => void;
  readonly log: Log;
}
