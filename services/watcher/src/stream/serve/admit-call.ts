import { Http2ServerRequest } from "node:http2";
import { Code } from "@connectrpc/connect";
import { joinRights, type Rights, type TokenProblem } from "../../identity/rights.ts";
import type { CheckedToken, TokenChecker } from "../../identity/token-checker.ts";
import type { CallContext, ServerRequest, ServerResponse } from "./request-handler.ts";

/**
 * Calls `begin` with the rights of a call: those of its connection, and those of the token that it carries. Without a
 * token, or with a known one, it does so at once; otherwise when the token has been checked, unless the client has
 * cancelled the call by then. A refused token adds no rights; if the service needs them, its error gives the reason.
 *
 * While it waits, nothing reads the request, so the stream keeps its data and its end. When the token expires or is
 * revoked, the signal `leave` of the call aborts with UNAUTHENTICATED.
 *
 * The handler of `makeCallHandler` calls it for each call. Separate from it, because only here a call may wait before
 * any service sees it.
 */
export function admitCall(
  { request, response, call }: ArrivedCall,
  tokens: TokenChecker | undefined,
  begin: (call: CallContext) => void,
): void {
  const header = request.headers.authorization;
  if (tokens === undefined || header === undefined || !mayCheckToken(request, call.rights, tokens)) {
    begin(call);
    return;
  }
  const admit = (result: CheckedToken): void => {
    if (result.kind === "refused") begin(withProblem(call, result.problem));
    else begin(withToken(call, result, response));
  };
  const token = /^Bearer +(\S+)$/i.exec(header)?.[1];
  const problem = token === undefined ? "the header authorization has no bearer token" : secrecyProblem(request);
  if (token === undefined || problem !== undefined) {
    begin(withProblem(call, { code: Code.Unauthenticated, message: problem ?? "" }));
    return;
  }
  const result = tokens.check(token, request.socket.remoteAddress);
  if (result instanceof Promise) {
    result
      .then((checked) => {
        if (!isOver(request, response)) admit(checked);
      })
      // Without this, an error in one call would end the process.
      .catch(() => ("stream" in response ? response.stream : response).destroy());
  } else admit(result);
}

/** True if a call has a token that may give it more rights than those of its connection. */
export function mayCheckToken({ headers }: ServerRequest, rights: Rights, tokens: TokenChecker | undefined): boolean {
  return tokens !== undefined && headers.authorization !== undefined && !hasEverything(rights);
}

/** A call whose header has arrived. */
interface ArrivedCall {
  readonly request: ServerRequest;
  readonly response: ServerResponse;
  /** With the rights of the connection. */
  readonly call: CallContext;
}

function hasEverything({ nodes, hasState, hasInspection }: Rights): boolean {
  return nodes === "all" && hasState && hasInspection;
}

/** Returns why the token of a request is not secret; undefined over TLS. Over plain TCP, others may have read it. */
function secrecyProblem({ socket }: ServerRequest): string | undefined {
  return "encrypted" in socket && socket.encrypted ? undefined : "a token is accepted over TLS only";
}

function withProblem(call: CallContext, tokenProblem: TokenProblem): CallContext {
  return { ...call, rights: { ...call.rights, tokenProblem } };
}

/** Returns the call with the rights of its token, whose end is also the end of the call. */
function withToken(
  call: CallContext,
  { token }: CheckedToken & { kind: "accepted" },
  response: ServerResponse,
): CallContext {
  const leaving = new AbortController();
  const signals = [token.ended, call.leave];
  const removers = signals.map((signal) => {
    const leave = (): void => leaving.abort(signal.reason);
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    return () => signal.removeEventListener("abort", leave);
  });
  token.calls += 1;
  response.once("close", () => {
    token.calls -= 1;
    for (const remove of removers) remove();
  });
  return { ...call, rights: joinRights(call.rights, token.rights), leave: leaving.signal };
}

/** Returns true if the client cancelled the call, or the connection is closed. */
function isOver(request: ServerRequest, response: ServerResponse): boolean {
  if (!(request instanceof Http2ServerRequest)) return response.destroyed || request.destroyed;
  const { stream } = request;
  if (!stream.closed && !stream.destroyed && !stream.aborted) return false;
  // After a reset without an error, Node.js would wait for the end of the data, which is never read.
  stream.destroy();
  return true;
}
