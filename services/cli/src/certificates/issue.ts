// The library needs this module, and does not import it.
import "reflect-metadata";

import { createPrivateKey, KeyObject, webcrypto } from "node:crypto";
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

/** A name in a certificate (subjectAltName). A `url` states a right of a client: `kpng://node/n1`. */
export interface SubjectName {
  readonly type: "dns" | "ip" | "url";
  readonly value: string;
}

/** A certificate to issue. */
export interface CertificateRequest {
  /** Shown in logs; gives no right. At most 64 characters. */
  readonly commonName: string;
  readonly names: readonly SubjectName[];
  /** A certificate for a client is not accepted from a server, and the reverse. */
  readonly usage: "server" | "client";
  /** Days until it expires; earlier if its CA does. */
  readonly days: number;
}

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;

/** Life of a CA in days: ten years. Replacing it takes two changes on every node. */
const authorityDays = 3_650;

const dayMs = 86_400_000;

/** Certificates are valid from this long before they are issued, for machines whose clock is behind. */
const slackMs = 3_600_000;

cryptoProvider.set(webcrypto);

/**
 * Makes a CA with a new key, for `openAuthority`. It cannot sign further CAs.
 *
 * Separate, because this file contains all uses of the X.509 library (docs/decisions/0046). The library takes a tenth
 * of a second to load, so `kpng certificates` imports this file only when it issues a certificate.
 */
export async function createAuthority(now: Date): Promise<PemPair> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: [{ CN: ["kpng CA"] }],
    notBefore: new Date(now.getTime() - slackMs),
    notAfter: new Date(now.getTime() + authorityDays * dayMs),
    signingAlgorithm: algorithm,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return pairOf(keys.privateKey, certificate);
}

/**
 * Issues a certificate with a new key. `authority` is a CA that {@link createAuthority} made. Called by `kpng
 * certificates`.
 */
export async function issueCertificate(
  authority: PemPair,
  { commonName, names, usage, days }: CertificateRequest,
  now: Date,
): Promise<PemPair> {
  const issuer = new X509Certificate(authority.certificate);
  const signingKey = createPrivateKey(authority.key).toCryptoKey(algorithm, false, ["sign"]);
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const end = Math.min(now.getTime() + days * dayMs, issuer.notAfter.getTime());
  const certificate = await X509CertificateGenerator.create({
    subject: [{ CN: [commonName] }],
    issuer: issuer.subject,
    notBefore: new Date(now.getTime() - slackMs),
    notAfter: new Date(end),
    signingAlgorithm: algorithm,
    publicKey: keys.publicKey,
    signingKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
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
