import type { Server } from "node:net";
import { listenOnSocket } from "@kpng/process/connection/listen-on-socket.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { ListenAddress } from "./listen-address.ts";

/**
 * Starts listening on an address of `--listen` and returns the address for clients. Port 0 is replaced by the chosen
 * port. `serve` calls it for each address. `onAcceptError` is called when too many files are open to accept a
 * connection.
 *
 * Errors: LISTEN_FAILED if the server cannot listen on the address.
 *
 * Separate from `parseListenAddress`, which is pure.
 */
export async function listen(server: Server, address: ListenAddress, onAcceptError: () => void): Promise<string> {
  if (address.kind === "unix") {
    await listenOnSocket(server, address.path);
    server.on("error", onAcceptError);
    return `unix://${address.path}`;
  }
  const { host: wanted, port: wantedPort, isIPv6Only: ipv6Only } = address;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(new ProcessError("LISTEN_FAILED", `cannot listen on tcp://${wanted ?? ""}:${wantedPort}`, { cause })),
    );
    server.listen({ port: wantedPort, ipv6Only, ...(wanted === undefined ? {} : { host: wanted }) }, resolve);
  });
  server.on("error", onAcceptError);
  const bound = server.address();
  const port = typeof bound === "object" && bound !== null ? bound.port : wantedPort;
  const host = wanted === undefined || wanted === "0.0.0.0" || wanted === "::" ? "localhost" : wanted;
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
