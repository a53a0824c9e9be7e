import type { Transport } from "@connectrpc/connect";
import { dial, parseApiAddress } from "@kpng/process/connection/dial.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import { clientOptions } from "@kpng/process/token-file.ts";
import { readApiClient } from "../context/api-client.ts";
import type { Options } from "../context/command-context.ts";

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
