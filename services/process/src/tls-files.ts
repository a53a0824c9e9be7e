import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { OptionSpec } from "./options.ts";
import { ProcessError } from "./process-error.ts";

/** Paths of PEM files; undefined where the option is not set. */
export interface TlsPaths {
  readonly key?: string | undefined;
  readonly crt?: string | undefined;
  readonly ca?: string | undefined;
}

/** Contents of PEM files, checked. */
export interface TlsFiles {
  readonly key?: Buffer | undefined;
  readonly cert?: Buffer | undefined;
  readonly ca?: Buffer | undefined;
}

/** The three options of KPNG with a prefix: "listen-", "api-client-" or "". */
export function tlsOptions(prefix: string, what: string): readonly OptionSpec[] {
  return [
    { flags: `--${prefix}tls-key <file>`, description: `private key for ${what}, PEM` },
    { flags: `--${prefix}tls-crt <file>`, description: `certificate for ${what}, PEM` },
    { flags: `--${prefix}tls-ca <file>`, description: `certificates that the peer of ${what} is checked against, PEM` },
  ];
}

/**
 * Reads and checks the files of a server: all three or none, as in KPNG, where any of them makes client certificates
 * mandatory. Returns undefined for none.
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
      `a TLS listener checks its clients and needs all three files; missing: ${missing.map((name) => `--${prefix}tls-${name}`).join(", ")}`,
    );
  }
  return { ...readPair(prefix, key, crt), ca: readCertificate(`--${prefix}tls-ca`, ca) };
}

/**
 * Reads and checks the files of a client: a key with its certificate, a CA, or both. Returns undefined for none.
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
    throw new ProcessError("TLS_FILES", `--${prefix}tls-key ${keyPath} holds no private key in PEM form`, { cause });
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
    throw new ProcessError("TLS_FILES", `${option} ${path} holds no certificate in PEM form`, { cause });
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
