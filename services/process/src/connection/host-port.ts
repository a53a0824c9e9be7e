import { ProcessError } from "../process-error.ts";
import { withoutCredentials } from "../redact.ts";

/**
 * Splits `host:port`, the value of the named option. An undefined host stands for all addresses.
 *
 * Errors: BAD_OPTION if the text is not in this format.
 *
 * Called for addresses to listen on: by the servers of health and metrics, and by the watcher. `parseApiAddress` parses
 * addresses to connect to, which have other forms.
 */
export function parseHostPort(
  address: string,
  option?: string,
): { readonly host: string | undefined; readonly port: number } {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^[\]:]*)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) {
    throw new ProcessError(
      "BAD_OPTION",
      `${option === undefined ? "" : `${option} `}"${withoutCredentials(address)}" is not an address: write host:port, [IPv6]:port or :port, port 0 to 65535`,
    );
  }
  const host = match[1] ?? match[2];
  return { host: host === "" ? undefined : host, port };
}
