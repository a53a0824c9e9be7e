import { connect } from "node:net";
import type { Transport } from "@connectrpc/connect";
import { dial } from "@kpng/process/connection/dial.ts";
import type { TlsFiles } from "@kpng/process/tls-files.ts";
import type { WatcherPlace } from "./resolve-apis.ts";

/** Returns a transport to one place; the certificate is checked against the name that was asked for. */
export function dialPlace(
  { key, address, serverName }: WatcherPlace,
  tls: TlsFiles | undefined,
  maxMessageBytes: number | undefined,
): Transport {
  if (address.kind === "unix") return dial({ api: `unix://${address.path}`, tls, maxMessageBytes });
  if (!address.isTls) return dial({ api: key, maxMessageBytes });
  const named: TlsFiles & { readonly servername?: string } =
    serverName === undefined ? { ...tls } : { ...tls, servername: serverName };
  return dial({ api: `https://${key}`, tls: named, maxMessageBytes });
}

/**
 * Rejects if a place does not take connections within `limitMs`.
 *
 * A machine that lost its power answers nothing at all, and the kernel tries for two minutes.
 */
export function checkReachable({ address }: WatcherPlace, limitMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(address.kind === "unix" ? { path: address.path } : address);
    const finish = (error?: Error): void => {
      signal.removeEventListener("abort", abort);
      socket.destroy();
      if (error === undefined) resolve();
      else reject(error);
    };
    const abort = (): void => finish(new Error("aborted"));
    signal.addEventListener("abort", abort, { once: true });
    socket.setTimeout(limitMs, () => finish(new Error(`no answer within ${limitMs} ms`)));
    socket.once("connect", () => finish());
    socket.once("error", finish);
  });
}
