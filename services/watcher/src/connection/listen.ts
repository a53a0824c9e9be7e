import { chmodSync } from "node:fs";
import type { ListenOptions, Server } from "node:net";
import { removeStaleSocket } from "@kpng/process/connection/stale-socket.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { ListenAddress } from "./listen-address.ts";

/**
 * Starts listening on an address of `--listen` and returns the address for clients. Port 0 is replaced by the chosen
 * port. `serveTask` calls it for each address. `onAcceptError` is called when too many files are open to accept a
 * connection.
 *
 * Errors: LISTEN_FAILED if the server cannot listen on the address.
 *
 * Separate from `parseListenAddress`, which is pure.
 */
export async function listen(server: Server, address: ListenAddress, onAcceptError: () => void): Promise<string> {
  if (address.kind === "unix") await removeStaleSocket(address.path);
  const target: ListenOptions =
    address.kind === "unix"
      ? { path: address.path }
      : {
          port: address.port,
          ipv6Only: address.isIPv6Only,
          ...(address.host === undefined ? {} : { host: address.host }),
        };
  const text = address.kind === "unix" ? `unix://${address.path}` : `tcp://${address.host ?? ""}:${address.port}`;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => reject(new ProcessError("LISTEN_FAILED", `cannot listen on ${text}`, { cause })));
    server.listen(target, resolve);
  });
  server.on("error", onAcceptError);
  if (address.kind === "unix") {
    // As in KPNG: access for the owner and the group only.
    chmodSync(address.path, 0o660);
    return text;
  }
  const bound = server.address();
  const port = typeof bound === "object" && bound !== null ? bound.port : address.port;
  const host =
    address.host === undefined || address.host === "0.0.0.0" || address.host === "::" ? "localhost" : address.host;
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
