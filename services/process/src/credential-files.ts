import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { OptionSpec } from "./options.ts";
import { ProcessError } from "./process-error.ts";

/** Paths of PEM files, from the options. */
interface TlsPaths {
  readonly key?: string | undefined;
  readonly crt?: string | undefined;
  readonly ca?: string | undefined;
}

/** Minimum TLS version for watchers and their clients. KPNG's clients also support it. */
export const minTlsVersion = "TLSv1.3";

/** Checked contents of PEM files. */
export interface TlsFiles {
  readonly key?: Buffer | undefined;
  readonly cert?: Buffer | undefined;
  readonly ca?: Buffer | undefined;
}

/**
 * Reads the files again, so that renewed certificates take effect without a restart. A server calls it from time to
 * time, a client for each connection.
 *
 * Errors: TLS_FILES, for example while a key and its certificate are being replaced one after the other.
 */
export type ReadTls<T extends TlsFiles = TlsFiles> = () => T;

/** Contents of a server's files. `ca` is undefined if clients need no certificate. */
export type ServerTlsFiles = TlsFiles & { readonly key: Buffer; readonly cert: Buffer };

/**
 * Returns KPNG's three TLS options with a prefix: "listen-" for a server, "" for a client. `what` completes
 * "certificate for". For a client, the names that some KPNG programs use, `--api-client-tls-…`, are aliases.
 */
export function tlsOptions(prefix: string, what: string): readonly OptionSpec[] {
  const option = (name: string, description: string): OptionSpec => ({
    flags: `--${prefix}${name} <file>`,
    description,
    ...(prefix === "" ? { aliases: [`--api-client-${name}`] } : {}),
  });
  return [
    option("tls-key", `private key for ${what}, PEM`),
    option("tls-crt", `certificate for ${what}, PEM`),
    option("tls-ca", `CA certificates to verify the peer of ${what}, PEM`),
  ];
}

/**
 * Checks a server's files and returns a function that reads them; undefined if no option is set.
 *
 * All three files are required, as in KPNG: a server with TLS demands client certificates, unless `hasTokens` says that
 * clients may prove their identity with tokens instead.
 *
 * Errors: TLS_FILES, with the option and the file.
 */
export function readServerTls(prefix: string, paths: TlsPaths, hasTokens = false): ReadTls<ServerTlsFiles> | undefined {
  const { key, crt, ca } = paths;
  if (key === undefined && crt === undefined && ca === undefined) return undefined;
  if (key === undefined || crt === undefined || (ca === undefined && !hasTokens)) {
    const required = hasTokens ? (["key", "crt"] as const) : (["key", "crt", "ca"] as const);
    const missing = required.filter((name) => paths[name] === undefined).map((name) => `--${prefix}tls-${name}`);
    const needs = hasTokens
      ? "needs a key and a certificate"
      : "verifies client certificates and needs all three files";
    throw new ProcessError("TLS_FILES", `a TLS listener ${needs}; missing: ${missing.join(", ")}`);
  }
  const read = () => ({ ...readPair(prefix, key, crt), ...readCa(prefix, ca) });
  read();
  return read;
}

/**
 * Checks a client's files (a key with its certificate, CA certificates, or both) and returns a function that reads
 * them; undefined if no option is set. Errors: TLS_FILES, with the option and the file.
 */
export function readClientTls(paths: TlsPaths): ReadTls | undefined {
  const { key, crt, ca } = paths;
  if (key === undefined && crt === undefined && ca === undefined) return undefined;
  if ((key === undefined) !== (crt === undefined)) {
    throw new ProcessError("TLS_FILES", "a client certificate needs both --tls-key and --tls-crt");
  }
  const read = () => ({
    ...(key === undefined || crt === undefined ? {} : readPair("", key, crt)),
    ...readCa("", ca),
  });
  read();
  return read;
}

function readCa(prefix: string, path: string | undefined): { readonly ca?: Buffer } {
  return path === undefined ? {} : { ca: readCertificate(`--${prefix}tls-ca`, path) };
}

function readPair(prefix: string, keyPath: string, crtPath: string): { readonly key: Buffer; readonly cert: Buffer } {
  const key = readFile(`--${prefix}tls-key`, keyPath);
  const cert = readCertificate(`--${prefix}tls-crt`, crtPath);
  let isPair: boolean;
  try {
    isPair = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  } catch (cause) {
    throw new ProcessError("TLS_FILES", `--${prefix}tls-key ${keyPath} is not a private key in PEM form`, { cause });
  }
  if (!isPair)
    throw new ProcessError(
      "TLS_FILES",
      `--${prefix}tls-key ${keyPath} does not belong to --${prefix}tls-crt ${crtPath}`,
    );
  return { key, cert };
}

function readCertificate(option: string, path: string): Buffer {
  const pem = readFile(option, path);
  try {
    new X509Certificate(pem);
  } catch (cause) {
    throw new ProcessError("TLS_FILES", `${option} ${path} is not a certificate in PEM form`, { cause });
  }
  return pem;
}

function readFile(option: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new ProcessError("TLS_FILES", `${option} ${path} cannot be read`, { cause });
  }
}

/**
 * Reads the token that a client of a watcher sends with each call. The kubelet replaces the file of a projected token
 * before the token expires, so a client reads it for each call.
 *
 * Errors: TOKEN_FILE.
 */
export type ReadToken = () => string;

/**
 * Returns the options with which a watcher's client verifies the watcher and proves its own identity: TLS files and a
 * token file. `what` names the connection in the option descriptions.
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

/** Checks the token file and returns a function that reads it; undefined without a path. Errors: TOKEN_FILE. */
export function readTokenFile(path: string | undefined): ReadToken | undefined {
  if (path === undefined) return undefined;
  const option = `--token-file ${path}`;
  const read = (): string => {
    let token: string;
    try {
      token = readFileSync(path, "utf8").trim();
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

/**
 * Returns the credentials for `dial` from the values of {@link clientOptions}: functions that read the files, undefined
 * if the option is not set. Errors: TLS_FILES, TOKEN_FILE.
 */
export function readCredentials(options: Readonly<Record<string, unknown>>): {
  readonly tls: ReadTls | undefined;
  readonly token: ReadToken | undefined;
} {
  const { tlsKey: key, tlsCrt: crt, tlsCa: ca, tokenFile } = options as Record<string, string | undefined>;
  return { tls: readClientTls({ key, crt, ca }), token: readTokenFile(tokenFile) };
}
