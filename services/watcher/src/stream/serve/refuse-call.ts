import { Code } from "@connectrpc/connect";
import type { ServerRequest, ServerResponse } from "./request-handler.ts";

/** True for the address of a method of a service: `/kpng.inspect.v1.InspectService/ListNodes`. Pages have others. */
export function isMethod(url: string | undefined): boolean {
  return /^\/[^/?]+\//.test(url ?? "");
}

/** Answers a call beyond a limit with RESOURCE_EXHAUSTED, without reading its request. */
export function refuseCall(request: ServerRequest, response: ServerResponse): void {
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
  // Discards the request; otherwise, an HTTP/1.1 connection could not take another one.
  request.resume();
}
