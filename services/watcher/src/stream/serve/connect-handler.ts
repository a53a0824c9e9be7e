import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  type ContextKey,
  createConnectRouter,
  createContextKey,
  createContextValues,
} from "@connectrpc/connect";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { forgetHost } from "@kpng/process/connection/forget-host.ts";
import type { Log } from "@kpng/process/log.ts";
import { noRights, type Rights } from "../../identity/rights.ts";

/** A call that the server has admitted, before its request is read. */
export interface Call {
  readonly request: Http2ServerRequest;
  readonly response: Http2ServerResponse;
  readonly rights: Rights;
  /**
   * Aborts when the client should open its next call on another connection. The signal's reason is the error for the
   * client. A handler that is waiting ends with this error; a handler that is writing a batch completes the batch
   * first.
   */
  readonly leave: AbortSignal;
}

/** Context value for handlers: the rights of the client. */
export const rightsKey = createContextKey<Rights>(noRights, { description: "kpng rights" });

/** Context value for handlers: the signal {@link Call.leave}. The default never aborts. */
export const leaveKey: ContextKey<AbortSignal> = createContextKey(new AbortController().signal, {
  description: "kpng leave",
});

/** Returns the client's address. *Shape:* `10.0.0.7:43210`, `[fd00::7]:43210`; "" for a unix or a closed socket. */
export function formatPeer(socket: { remoteAddress?: string | undefined; remotePort?: number | undefined }): string {
  const { remoteAddress: address, remotePort: port } = socket;
  if (address === undefined) return "";
  // A dual-stack listener reports IPv4 clients as mapped IPv6 addresses.
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  return `${plain.includes(":") ? `[${plain}]` : plain}:${port ?? 0}`;
}

/**
 * Returns the handler of all requests that the Connect library answers.
 *
 * It replaces connectNodeAdapter, which prints every client disconnect to the console. With thousands of nodes, clients
 * disconnect all the time.
 */
export function makeConnectHandler({ routes, log, ...options }: HandlerOptions) {
  const router = createConnectRouter(options);
  routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  return ({ request, response, leave, rights }: HandlerCall): void => {
    const handler = handlers.get(request.url?.split("?", 1)[0] ?? "");
    if (handler === undefined) {
      response.writeHead(404);
      response.end();
      // This discards the request, which would otherwise stay in memory until the client ends it.
      request.resume();
      return;
    }
    const values = createContextValues().set(rightsKey, rights).set(leaveKey, leave);
    forgetHost(request);
    handler(universalRequestFromNodeRequest(request, response, undefined, values))
      .then((answer) => universalResponseToNodeResponse(answer, response))
      .catch((error: unknown) => {
        const { code, rawMessage } = ConnectError.from(error);
        if (code !== Code.Aborted) log.debug("client disconnected", { rpc: handler.requestPath, reason: rawMessage });
      });
  };
}

/** A call over HTTP/2, or a request to the status page over HTTP/1.1. */
interface HandlerCall {
  readonly request: Parameters<typeof universalRequestFromNodeRequest>[0];
  readonly response: Parameters<typeof universalResponseToNodeResponse>[1];
  readonly rights: Rights;
  readonly leave: AbortSignal;
}

/** The services to register, the log, and options of the Connect library. */
interface HandlerOptions extends ConnectRouterOptions {
  readonly routes: (router: ConnectRouter) => void;
  readonly log: Log;
}
