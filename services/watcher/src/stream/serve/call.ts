import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { type ContextKey, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { noRights, type Rights } from "../../identity/rights.ts";
import type { WatchClient } from "../session/open-watch.ts";

/** A call that the server has admitted, before its request is read. */
export interface Call {
  readonly request: Http2ServerRequest;
  readonly response: Http2ServerResponse;
  readonly rights: Rights;
  /**
   * Aborts when the client should open its next call on another connection. Its reason is the error for the client. A
   * handler that waits ends with this error; a handler that writes a batch completes the batch first.
   */
  readonly leave: AbortSignal;
}

/** Context value for handlers: the address of the client; see {@link formatPeer}. */
export const peerKey = createContextKey("", { description: "kpng peer" });

/** Context value for handlers: the rights of the client. */
export const rightsKey = createContextKey<Rights>(noRights, { description: "kpng rights" });

/** Context value for handlers: the signal {@link Call.leave}. The default never aborts. */
export const leaveKey: ContextKey<AbortSignal> = createContextKey(new AbortController().signal, {
  description: "kpng leave",
});

/** Returns the client of a call that the Connect library serves. */
export function clientOf({ values, requestHeader }: HandlerContext): WatchClient {
  const rights = values.get(rightsKey);
  return { peer: values.get(peerKey), rights, userAgent: requestHeader.get("user-agent") ?? undefined };
}

/** Returns the client's address. *Shape:* `10.0.0.7:43210`, `[fd00::7]:43210`; "" for a unix or a closed socket. */
export function formatPeer(socket: { remoteAddress?: string | undefined; remotePort?: number | undefined }): string {
  const { remoteAddress: address, remotePort: port } = socket;
  if (address === undefined) return "";
  // A dual-stack listener reports IPv4 clients as mapped IPv6 addresses.
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  return `${plain.includes(":") ? `[${plain}]` : plain}:${port ?? 0}`;
}
