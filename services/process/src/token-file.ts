import type { OptionSpec } from "./options.ts";
import { ProcessError } from "./process-error.ts";
import { readRegularFile } from "./regular-file.ts";
import { tlsOptions } from "./tls-files.ts";

/**
 * Reads the token that a client of a watcher sends with each call. The kubelet replaces the file of a projected token
 * before the token expires, so a client reads it for each call.
 *
 * Errors: TOKEN_FILE.
 */
export type ReadToken = () => string;

/**
 * Returns the options with which a client of a watcher verifies the watcher and proves its own identity: TLS files and
 * a token file. `what` is the name of the connection in the descriptions.
 */
export function clientOptions(what: string): readonly OptionSpec[] {
  return [
    ...tlsOptions("", what),
    {
      flags: "--token-file <file>",
      description: `ServiceAccount token to send on ${what}, over TLS or a unix socket only; read for each call`,
      aliases: ["--api-client-token-file"],
    },
  ];
}

/** Tokens have some kilobytes. */
const maxTokenFileBytes = 64 * 1024;

/**
 * Checks the token file, and returns a function that reads it; undefined if the option is not set.
 *
 * Errors: TOKEN_FILE, with the option and the file.
 *
 * Backends and `kpng` call it at start, and pass the result to `dial`. Separate from `tls-files.ts`, because a watcher
 * uses that file too. The token of `kpng kube` for the API server is read by the Kubernetes client instead.
 */
export function readTokenFile(path: string | undefined): ReadToken | undefined {
  if (path === undefined) return undefined;
  const option = `--token-file ${path}`;
  const read = (): string => {
    let token: string;
    try {
      token = readRegularFile(path, maxTokenFileBytes).toString("utf8").trim();
    } catch (cause) {
      throw new ProcessError("TOKEN_FILE", `${option} cannot be read`, { cause });
    }
    // Other characters are not allowed in a token, and a header with a line break would be invalid.
    if (!/^[\w.~+/=-]+$/.test(token)) throw new ProcessError("TOKEN_FILE", `${option} does not contain a token`);
    return token;
  };
  read();
  return read;
}
