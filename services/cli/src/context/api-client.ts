import type { DialOptions } from "@kpng/process/connection/dial.ts";
import { readClientTls } from "@kpng/process/tls-files.ts";
import { readTokenFile } from "@kpng/process/token-file.ts";
import type { Options } from "./command-context.ts";

/**
 * Returns the credentials for `dial`: functions that read the files which the options of `clientOptions` name. A
 * function is undefined if its option is not set.
 *
 * Errors: TLS_FILES or TOKEN_FILE if a file is missing or invalid.
 *
 * The callers connect to a watcher: the source `api`, `makeLocal`, `makeDashboard` and, for queries such as `kpng get`,
 * `dialRemote`. Separate from `command-context.ts`, so that a query loads neither metrics nor traces.
 */
export function readApiClient(options: Options): Pick<DialOptions, "tls" | "token"> {
  const { tlsKey: key, tlsCrt: crt, tlsCa: ca, tokenFile } = options as Record<string, string | undefined>;
  return { tls: readClientTls({ key, crt, ca }), token: readTokenFile(tokenFile) };
}
