import { createContextKey } from "@connectrpc/connect";

/** Where a call comes from, for handlers; see {@link formatPeer}. */
export const peerKey = createContextKey("", { description: "kpng peer" });

/** *Shape:* `10.0.0.7:43210`, `[fd00::7]:43210`; "" for a socket without addresses, or one that is closed. */
export function formatPeer(socket: { remoteAddress?: string | undefined; remotePort?: number | undefined }): string {
  const { remoteAddress: address, remotePort: port } = socket;
  if (address === undefined) return "";
  // A dual-stack listener shows IPv4 peers as IPv6.
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  return `${plain.includes(":") ? `[${plain}]` : plain}:${port ?? 0}`;
}
