import type { Transport } from "@connectrpc/connect";
import { type DialOptions, dial, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { clientOptions, readClientTls, readTokenFile } from "@kpng/process/credential-files.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Options } from "./command-context.ts";

/**
 * Returns the credentials for `dial`: functions that read the files which the options of `clientOptions` name. A
 * function is undefined if its option is not set.
 *
 * Errors: TLS_FILES or TOKEN_FILE if a file is missing or invalid.
 */
export function readApiClient(options: Options): Pick<DialOptions, "tls" | "token"> {
  const { tlsKey: key, tlsCrt: crt, tlsCa: ca, tokenFile } = options as Record<string, string | undefined>;
  return { tls: readClientTls({ key, crt, ca }), token: readTokenFile(tokenFile) };
}

/**
 * Options of the commands that query a remote watcher or a backend: its address, and credentials. `makeInspect`,
 * `makeVersion` and `makeDashboard` share them, which is why they have a file of their own.
 */
export const remoteOptions: readonly OptionSpec[] = [
  {
    flags: "--api <address>",
    description: "watcher or backend: host:port, http://host:port, https://host:port or unix:///path",
    default: "127.0.0.1:12090",
    parse: (text) => {
      parseApiAddress(text, false);
      return text;
    },
  },
  ...clientOptions("the connection to the watcher"),
];

/** Returns a connection as {@link remoteOptions} say. Errors: TLS_FILES or TOKEN_FILE. */
export function dialRemote(options: Options): Transport {
  return dial({ api: String(options.api ?? ""), ...readApiClient(options) });
}
