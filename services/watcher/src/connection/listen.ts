import type { AddressInfo, Server } from "node:net";
import { addressAndPort } from "@kpng/model/address.ts";
import { listenOnSocket, parseHostPort } from "@kpng/process/connection/listen.ts";
import { withoutCredentials } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";

/** Address on which a watcher serves its clients. The option `--listen` sets it. */
export type ListenAddress =
  | { readonly kind: "tcp"; readonly host: string | undefined; readonly port: number; readonly isIPv6Only: boolean }
  | { readonly kind: "unix"; readonly path: string };

/**
 * Parses a value of `--listen`.
 *
 * | value | listens on |
 * |---|---|
 * | `tcp://127.0.0.1:12090`, `127.0.0.1:12090` | this address |
 * | `tcp://:12090` | all addresses of both families |
 * | `tcp4://:12090`, `tcp6://:12090` | all addresses of that family |
 * | `unix:///run/kpng.sock` | a unix socket |
 *
 * Errors: BAD_OPTION if the string is not an address.
 */
export function parseListenAddress(text: string): ListenAddress {
  const [, protocol = "tcp", address] = /^(?:(tcp[46]?|unix):\/\/(?=.)|(?!.*\/))(.+)$/.exec(text) ?? [];
  if (address === undefined) {
    throw new ProcessError(
      "BAD_OPTION",
      `--listen "${withoutCredentials(text)}" is not an address: write host:port or unix:///path`,
    );
  }
  if (protocol === "unix") return { kind: "unix", path: address };
  const { host, port } = parseHostPort(address, "--listen");
  const anyHost = protocol === "tcp4" ? "0.0.0.0" : protocol === "tcp6" ? "::" : undefined;
  return { kind: "tcp", host: host ?? anyHost, port, isIPv6Only: protocol === "tcp6" };
}

/**
 * Starts listening and returns the bound address, e.g. "[::]:12090" for all addresses. `onAcceptError` is called when
 * too many files are open to accept a connection.
 *
 * Errors: LISTEN_FAILED if the server cannot listen on the address.
 */
export async function listen(server: Server, address: ListenAddress, onAcceptError: () => void): Promise<string> {
  if (address.kind === "unix") {
    await listenOnSocket(server, address.path);
    server.on("error", onAcceptError);
    return `unix://${address.path}`;
  }
  const { host: givenHost, port: givenPort, isIPv6Only: ipv6Only } = address;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) =>
      reject(new ProcessError("LISTEN_FAILED", `cannot listen on tcp://${givenHost ?? ""}:${givenPort}`, { cause })),
    );
    server.listen({ port: givenPort, ipv6Only, ...(givenHost === undefined ? {} : { host: givenHost }) }, resolve);
  });
  server.on("error", onAcceptError);
  const bound = server.address() as AddressInfo;
  return addressAndPort(bound.address, bound.port);
}
