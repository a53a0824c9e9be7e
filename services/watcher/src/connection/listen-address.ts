import { parseHostPort } from "@kpng/process/connection/host-port.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";

/** Address on which a watcher serves its clients. The option `--listen` sets it. */
export type ListenAddress =
  | { readonly kind: "tcp"; readonly host: string | undefined; readonly port: number; readonly isIPv6Only: boolean }
  | { readonly kind: "unix"; readonly path: string };

/**
 * Parses a value of `--listen`.
 *
 * | value | listens on |
 * |---|---|
 * | `tcp://127.0.0.1:12090` | this address |
 * | `tcp://:12090` | all addresses of both families |
 * | `tcp4://:12090`, `tcp6://:12090` | all addresses of that family |
 * | `unix:///run/kpng.sock` | a unix socket |
 *
 * Errors: BAD_OPTION if the text is not an address.
 *
 * `serveTask` calls it, so that an invalid address is an error before anything starts. Separate from `listen`, which
 * opens the address, because this function is pure.
 */
export function parseListenAddress(text: string): ListenAddress {
  const match = /^(tcp[46]?|unix):\/\/(.+)$/.exec(text);
  if (match?.[1] === undefined || match[2] === undefined) {
    throw new ProcessError(
      "BAD_OPTION",
      `--listen "${withoutCredentials(text)}" is not an address: write tcp://host:port or unix:///path`,
    );
  }
  const [, protocol, rest] = match;
  if (protocol === "unix") return { kind: "unix", path: rest };
  const { host, port } = parseHostPort(rest, "--listen");
  const anyHost = protocol === "tcp4" ? "0.0.0.0" : protocol === "tcp6" ? "::" : undefined;
  return { kind: "tcp", host: host ?? anyHost, port, isIPv6Only: protocol === "tcp6" };
}
