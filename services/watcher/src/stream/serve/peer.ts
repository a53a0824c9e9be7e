import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { noRights, type Rights } from "../../identity/rights.ts";
import type { WatchClient } from "../session/open-watch.ts";

/** Context value for handlers: the address of the client; see {@link formatPeer}. `makeRequestHandler` sets it. */
export const peerKey = createContextKey("", { description: "kpng peer" });

/** Context value for handlers: the rights of the client. `makeRequestHandler` and `localTransport` set it. */
export const rightsKey = createContextKey<Rights>(noRights, { description: "kpng rights" });

/**
 * Returns the client of a call that the Connect library serves, for `watchOps`. This file is separate, because services
 * in several folders read the client of a call.
 */
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
