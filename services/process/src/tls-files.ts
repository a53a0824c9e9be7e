import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { OptionSpec } from "./options.ts";
import { ProcessError } from "./process-error.ts";

/**
 * Paths of PEM files, from the options; undefined if the option is not set. A watcher uses such files to serve TLS, its
 * clients to verify it and to present a certificate.
 */
export interface TlsPaths {
  readonly key?: string | undefined;
  readonly crt?: string | undefined;
  readonly ca?: string | undefined;
}

/** Checked contents of PEM files. */
export interface TlsFiles {
  readonly key?: Buffer | undefined;
  readonly cert?: Buffer | undefined;
  readonly ca?: Buffer | undefined;
}

/**
 * Returns KPNG's three TLS options with a prefix: "listen-", "api-client-" or "". `what` completes "certificate for".
 */
export function tlsOptions(prefix: string, what: string): readonly OptionSpec[] {
  return [
    { flags: `--${prefix}tls-key <file>`, description: `private key for ${what}, PEM` },
    { flags: `--${prefix}tls-crt <file>`, description: `certificate for ${what}, PEM` },
    { flags: `--${prefix}tls-ca <file>`, description: `CA certificates to verify the peer of ${what}, PEM` },
  ];
}

/**
 * Reads and checks the files of a server; returns undefined if no option is set.
 *
 * All three files are required, as in KPNG: a server with TLS always demands client certificates.
 *
 * Errors: TLS_FILES, with the option and the file.
 */
export function readServerTls(
  prefix: string,
  paths: TlsPaths,
): Required<{ [K in keyof TlsFiles]: Buffer }> | undefined {
  const { key, crt, ca } = paths;
  if (key === undefined && crt === undefined && ca === undefined) return undefined;
  const missing = [key === undefined && "key", crt === undefined && "crt", ca === undefined && "ca"].filter(Boolean);
  if (key === undefined || crt === undefined || ca === undefined) {
    throw new ProcessError(
      "TLS_FILES",
      `a TLS listener verifies client certificates and needs all three files; missing: ${missing.map((name) => `--${prefix}tls-${name}`).join(", ")}`,
    );
  }
  return { ...readPair(prefix, key, crt), ca: readCertificate(`--${prefix}tls-ca`, ca) };
}

/**
 * Reads and checks the files of a client: a key with its certificate, CA certificates, or both. Returns undefined if no
 * option is set.
 *
 * Errors: TLS_FILES, with the option and the file.
 */
export function readClientTls(prefix: string, paths: TlsPaths): TlsFiles | undefined {
  const { key, crt, ca } = paths;
  if (key === undefined && crt === undefined && ca === undefined) return undefined;
  if ((key === undefined) !== (crt === undefined)) {
    throw new ProcessError("TLS_FILES", `a client certificate needs both --${prefix}tls-key and --${prefix}tls-crt`);
  }
  const pair = key === undefined || crt === undefined ? {} : readPair(prefix, key, crt);
  return { ...pair, ...(ca === undefined ? {} : { ca: readCertificate(`--${prefix}tls-ca`, ca) }) };
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
