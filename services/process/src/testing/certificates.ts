import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "./temporary-folder.ts";

/** Certificate files for tests, created with openssl. */
export interface TestCertificates {
  readonly ca: string;
  /** Valid for 127.0.0.1 and localhost. */
  readonly server: KeyPair;
  /** With the common name "n1". */
  readonly client: KeyPair;
  /** Issues a client certificate with these URI names. It is valid for 30 days by default. */
  clientWith(uris: readonly string[], days?: number): KeyPair;
}

/** Paths of a private key and its certificate. */
export interface KeyPair {
  readonly key: string;
  readonly crt: string;
}

/**
 * Creates a certificate authority with a server and a client certificate, for tests of TLS in all packages. The files
 * are deleted as those of {@link temporaryFolder}.
 */
export function makeCertificates(finished?: Parameters<typeof temporaryFolder>[0]): TestCertificates {
  const folder = temporaryFolder(finished);
  const at = (name: string): string => join(folder, name);
  const openssl = (...args: string[]): void => void execFileSync("openssl", args, { stdio: "pipe" });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const ca = ["-keyout", at("ca.key"), "-out", at("ca.crt"), "-subj", "/CN=test ca", "-days", "30"];
  openssl("req", "-x509", ...newKey, ...ca);
  let clients = 0;
  const issue = (name: string, subject: string, extension: string, days = 30) => {
    const pair = { key: at(`${name}.key`), crt: at(`${name}.crt`) };
    writeFileSync(at(`${name}.ext`), extension);
    openssl("req", ...newKey, "-keyout", pair.key, "-out", at(`${name}.csr`), "-subj", subject);
    openssl(
      ...["x509", "-req", "-in", at(`${name}.csr`), "-CA", at("ca.crt"), "-CAkey", at("ca.key"), "-CAcreateserial"],
      ...["-out", pair.crt, "-days", String(days), "-extfile", at(`${name}.ext`)],
    );
    return pair;
  };
  return {
    ca: at("ca.crt"),
    server: issue("server", "/CN=kpng", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
    client: issue("client", "/CN=n1", "extendedKeyUsage=clientAuth"),
    clientWith: (uris, days) => {
      const names = uris.length === 0 ? "" : `\nsubjectAltName=${uris.map((uri) => `URI:${uri}`).join(",")}`;
      return issue(`client-${clients++}`, "/CN=client", `extendedKeyUsage=clientAuth${names}`, days);
    },
  };
}
