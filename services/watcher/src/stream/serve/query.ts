import { Code } from "@connectrpc/connect";
import type { ServerRequest, ServerResponse } from "./request-handler.ts";

/**
 * True for all calls except single health checks and the Watch of nodes and relays: mostly inspection and reflection,
 * by people and tools.
 *
 * The handler of `makeCallHandler` calls the functions of this file for each call: `QueryLimit` limits queries, so that
 * people cannot keep nodes waiting. Separate from `QueryLimit`, which only counts.
 */
export function isQuery(url: string | undefined): boolean {
  return !/^\/(localv1\.Sets\/|globalv1\.Sets\/|grpc\.health\.v1\.Health\/(Check|List)(\?|$))/.test(url ?? "");
}

/** True for a watch of health, which needs no right and has no end. `makeCallHandler` limits them on their own. */
export function isHealthWatch(url: string | undefined): boolean {
  return /^\/grpc\.health\.v1\.Health\/Watch(\?|$)/.test(url ?? "");
}

/** True for the address of a method of a service: `/kpng.inspect.v1.InspectService/ListNodes`. Pages have others. */
export function isMethod(url: string | undefined): boolean {
  return /^\/[^/?]+\//.test(url ?? "");
}

/** Answers a query beyond the limit with RESOURCE_EXHAUSTED, without reading its request. */
export function refuseQuery(request: ServerRequest, response: ServerResponse): void {
  const message = "too many queries in progress; retry later";
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
  // Discards the request; otherwise, an HTTP/1.1 connection could not take another one.
  request.resume();
}
