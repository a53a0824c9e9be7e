// The X.509 library needs this module but does not import it.
import "reflect-metadata";
import { createPrivateKey, KeyObject, X509Certificate as NodeCertificate, webcrypto } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ProcessError } from "@kpng/process/process-error.ts";
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  cryptoProvider,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from "@peculiar/x509";

/** A private key and its certificate, both as PEM. */
export interface PemPair {
  readonly key: string;
  readonly certificate: string;
}

/** A name in a certificate (subjectAltName). A `url` grants a client a right: `kpng://node/n1`. */
export interface SubjectName {
  readonly type: "dns" | "ip" | "url";
  readonly value: string;
}

/** A certificate to issue. */
export interface CertificateRequest {
  /** Shown in logs; grants no right. At most 64 characters. */
  readonly commonName: string;
  readonly names: readonly SubjectName[];
  /** A client certificate is not accepted from a server, and vice versa. */
  readonly usage: "server" | "client";
  /** Days until the certificate expires; it expires earlier if its CA does. */
  readonly days: number;
}

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;

/** Lifetime of a CA, in days: ten years, because replacing a CA takes two changes on every node. */
const authorityDays = 3_650;

const dayMs = 86_400_000;

/** Certificates are valid from an hour before they are issued, for machines whose clock is slow. */
const validFrom = (now: Date): Date => new Date(now.getTime() - 3_600_000);

/** A key that can be written to a file, and an extension that a verifier must understand. */
const [extractable, critical] = [true, true];

cryptoProvider.set(webcrypto);

/** Makes a CA with a new key. The CA cannot sign further CAs. */
async function createAuthority(now: Date): Promise<PemPair> {
  const keys = await webcrypto.subtle.generateKey(algorithm, extractable, ["sign", "verify"]);
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: [{ CN: ["kpng CA"] }],
    notBefore: validFrom(now),
    notAfter: new Date(now.getTime() + authorityDays * dayMs),
    signingAlgorithm: algorithm,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, 0, critical),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, critical),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return pairOf(keys.privateKey, certificate);
}

/** Issues a certificate with a new key. `authority` is a CA that {@link openAuthority} returned. */
export async function issueCertificate(
  authority: PemPair,
  { commonName, names, usage, days }: CertificateRequest,
  now: Date,
): Promise<PemPair> {
  const issuer = new X509Certificate(authority.certificate);
  const signingKey = createPrivateKey(authority.key).toCryptoKey(algorithm, false, ["sign"]);
  const keys = await webcrypto.subtle.generateKey(algorithm, extractable, ["sign", "verify"]);
  const end = Math.min(now.getTime() + days * dayMs, issuer.notAfter.getTime());
  const certificate = await X509CertificateGenerator.create({
    subject: [{ CN: [commonName] }],
    issuer: issuer.subject,
    notBefore: validFrom(now),
    notAfter: new Date(end),
    signingAlgorithm: algorithm,
    publicKey: keys.publicKey,
    signingKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, critical),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, critical),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage[usage === "server" ? "serverAuth" : "clientAuth"]]),
      new SubjectAlternativeNameExtension([...names]),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
      await AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    ],
  });
  return pairOf(keys.privateKey, certificate);
}

function pairOf(key: webcrypto.CryptoKey, certificate: X509Certificate): PemPair {
  return {
    key: KeyObject.from(key).export({ type: "pkcs8", format: "pem" }).toString(),
    certificate: `${certificate.toString("pem")}\n`,
  };
}

/**
 * Reads the CA in a folder (`ca.key`, `ca.crt`), or makes one if the folder contains none.
 *
 * Errors: TLS_FILES if the CA is incomplete or has expired; OUTPUT_FAILED if it cannot be written. Existing files are
 * never replaced.
 */
export async function openAuthority(folder: string, now: Date): Promise<PemPair & { readonly isNew: boolean }> {
  const [keyPath, certificatePath] = [join(folder, "ca.key"), join(folder, "ca.crt")];
  if (existsSync(keyPath) || existsSync(certificatePath)) {
    return { ...readAuthority(keyPath, certificatePath, now), isNew: false };
  }
  const authority = await createAuthority(now);
  write(folder, () => {
    writeFileSync(keyPath, authority.key, { mode: 0o600, flag: "wx" });
    writeFileSync(certificatePath, authority.certificate, { flag: "wx" });
  });
  return { ...authority, isNew: true };
}

/**
 * Writes `NAME.key` and `NAME.crt` in the CA's folder, replacing the files of an earlier certificate once both are
 * written. Returns their paths. Errors: OUTPUT_FAILED.
 */
export function writePair(folder: string, name: string, { key, certificate }: PemPair): readonly string[] {
  const paths = [join(folder, `${name}.key`), join(folder, `${name}.crt`)] as const;
  const drafts = [`${paths[0]}.new`, `${paths[1]}.new`] as const;
  write(folder, () => {
    for (const draft of drafts) rmSync(draft, { force: true });
    writeFileSync(drafts[0], key, { mode: 0o600, flag: "wx" });
    writeFileSync(drafts[1], certificate, { flag: "wx" });
    renameSync(drafts[1], paths[1]);
    renameSync(drafts[0], paths[0]);
  });
  return paths;
}

function readAuthority(keyPath: string, certificatePath: string, now: Date): PemPair {
  try {
    const authority = { key: readFileSync(keyPath, "utf8"), certificate: readFileSync(certificatePath, "utf8") };
    const parsed = new NodeCertificate(authority.certificate);
    if (!parsed.ca || !parsed.checkPrivateKey(createPrivateKey(authority.key)))
      throw new Error("they are not the key and the certificate of a CA");
    if (parsed.validToDate <= now) throw new Error(`the CA expired at ${parsed.validToDate.toISOString()}`);
    return authority;
  } catch (cause) {
    throw new ProcessError("TLS_FILES", `${certificatePath} with ${keyPath} cannot be used`, { cause });
  }
}

function write(folder: string, work: () => void): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    work();
  } catch (cause) {
    throw new ProcessError("OUTPUT_FAILED", `certificates cannot be written to ${folder}`, { cause });
  }
}
