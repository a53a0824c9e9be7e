import { connect } from "node:net";
import type { Transport } from "@connectrpc/connect";
import { type DialOptions, dial } from "@kpng/process/connection/dial.ts";
import type { TlsFiles } from "@kpng/process/tls-files.ts";
import type { WatcherAddress } from "./resolve-apis.ts";

/**
 * Returns a transport to one address of a watcher, for `dialWatchers`. The certificate must have the name that `--api`
 * gives, even if the name was resolved to an address. Separate from `dialWatchers`, which chooses among several
 * addresses: the functions of this file know only one.
 */
export function dialAddress(
  { key, address, serverName }: WatcherAddress,
  { tls, token, maxMessageBytes }: Omit<DialOptions, "api">,
): Transport {
  if (address.kind === "unix") return dial({ api: `unix://${address.path}`, tls, token, maxMessageBytes });
  if (!address.isTls) return dial({ api: key, token, maxMessageBytes });
  const named = (): TlsFiles & { readonly servername?: string } =>
    serverName === undefined ? { ...tls?.() } : { ...tls?.(), servername: serverName };
  return dial({ api: `https://${key}`, tls: named, token, maxMessageBytes });
}

/**
 * Rejects if an address does not accept a connection within `limitMs`. `dialWatchers` calls it before it opens a
 * stream. A machine without power does not answer at all, and the kernel alone would try for two minutes.
 */
export function checkReachable({ address }: WatcherAddress, limitMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(new Error("aborted"));
      return;
    }
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
