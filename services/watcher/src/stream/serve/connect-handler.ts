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
import type { Rights } from "../../identity/rights.ts";
import { formatPeer, leaveKey, peerKey, rightsKey } from "./call.ts";

/**
 * Returns the handler of all requests that the Connect library answers.
 *
 * It replaces connectNodeAdapter because of the log: the adapter prints every client disconnect to the console, and
 * with thousands of nodes, clients disconnect all the time.
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
      // Discards the request, which would stay in memory until the client ends it.
      request.resume();
      return;
    }
    const values = createContextValues()
      .set(peerKey, formatPeer(request.socket))
      .set(rightsKey, rights)
      .set(leaveKey, leave);
    let universal: UniversalServerRequest;
    try {
      universal = universalRequestFromNodeRequest(request, response, undefined, values);
    } catch (error) {
      // It throws for a request without a host, or with an invalid one.
      log.debug("request refused: invalid host", { rpc: handler.requestPath, reason: reasonOf(error) });
      response.writeHead(400);
      response.end();
      request.resume();
      return;
    }
    dropDistantDeadline(universal.header);
    handler(universal)
      .then((answer) => universalResponseToNodeResponse(answer, response))
      .catch((error: unknown) => {
        const { code, rawMessage } = ConnectError.from(error);
        if (code !== Code.Aborted) log.debug("client disconnected", { rpc: handler.requestPath, reason: rawMessage });
      });
  };
}

type UniversalServerRequest = ReturnType<typeof universalRequestFromNodeRequest>;

/** A call over HTTP/2, or a request to the status page over HTTP/1.1. */
export interface HandlerCall {
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

/** Longest delay of a Node.js timer, in milliseconds: 24.8 days. A longer one would fire at once. */
const maxTimerMs = 2 ** 31 - 1;

const unitMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/**
 * Returns the time limit of a call in milliseconds, at most 24.8 days; undefined without the header, and "invalid" for
 * a value that gRPC does not allow.
 *
 * *Shape:* up to eight digits and a unit, `1500m` for 1.5 s; see "Timeout" in gRPC's PROTOCOL-HTTP2.md.
 */
export function readTimeout(header: string | string[] | undefined): number | "invalid" | undefined {
  if (header === undefined) return undefined;
  const [, digits, unit = ""] = /^(\d{1,8})([HMSmun])$/.exec(String(header)) ?? [];
  const factorMs = unitMs[unit];
  if (digits === undefined || factorMs === undefined) return "invalid";
  return Math.min(Number(digits) * factorMs, maxTimerMs);
}

/**
 * Deletes the deadline of a call if it is beyond the longest timer: the timer of the Connect library would fire at once,
 * with a warning on standard error.
 */
function dropDistantDeadline(header: Headers): void {
  const timeout = readTimeout(header.get("grpc-timeout") ?? undefined);
  if (timeout === maxTimerMs) header.delete("grpc-timeout");
  if (Number(header.get("connect-timeout-ms") ?? 0) > maxTimerMs) header.delete("connect-timeout-ms");
}
