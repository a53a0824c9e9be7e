import { createPrivateKey, X509Certificate } from "node:crypto";
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { reasonOf } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { readRegularFile } from "@kpng/process/regular-file.ts";
import { createAuthority, type PemPair } from "./issue.ts";

/** Maximum size of a PEM file, in bytes. Ours have less than 1 KB. */
const maxFileBytes = 64 * 1024;

/**
 * Reads the CA in a folder (`ca.key`, `ca.crt`), or makes one there if there is none. `kpng certificates` calls it and
 * issues certificates with the result. Separate from `issue.ts`, so that only this file touches the disk.
 *
 * Errors: TLS_FILES if the CA is incomplete, has expired, or is not one that kpng made; OUTPUT_FAILED if it cannot be
 * written. An existing file is never replaced.
 */
export async function openAuthority(folder: string, now: Date): Promise<PemPair & { readonly isNew: boolean }> {
  const [keyPath, certificatePath] = [join(folder, "ca.key"), join(folder, "ca.crt")];
  const [hasKey, hasCertificate] = [existsSync(keyPath), existsSync(certificatePath)];
  if (hasKey && hasCertificate) {
    const authority = { key: read(keyPath), certificate: read(certificatePath) };
    checkAuthority(authority, keyPath, certificatePath, now);
    return { ...authority, isNew: false };
  }
  if (hasKey || hasCertificate) {
    const [there, missing] = hasKey ? [keyPath, certificatePath] : [certificatePath, keyPath];
    throw new ProcessError("TLS_FILES", `${missing} is missing beside ${there}: restore it, or use another --folder`);
  }
  const authority = await createAuthority(now);
  write(folder, () => {
    writeFileSync(keyPath, authority.key, { mode: 0o600, flag: "wx" });
    writeFileSync(certificatePath, authority.certificate, { flag: "wx" });
  });
  return { ...authority, isNew: true };
}

/**
 * Writes `NAME.key` and `NAME.crt` in the folder of the CA; files of an earlier certificate are replaced. Returns their
 * paths. Errors: OUTPUT_FAILED.
 */
export function writePair(folder: string, name: string, { key, certificate }: PemPair): readonly string[] {
  const paths = [join(folder, `${name}.key`), join(folder, `${name}.crt`)] as const;
  write(folder, () => {
    replace(paths[0], key, 0o600);
    replace(paths[1], certificate, 0o644);
  });
  return paths;
}

function checkAuthority({ key, certificate }: PemPair, keyPath: string, certificatePath: string, now: Date): void {
  const problem = problemOf(key, certificate, now);
  if (problem !== undefined) throw new ProcessError("TLS_FILES", `${certificatePath} with ${keyPath}: ${problem}`);
}

function problemOf(key: string, certificate: string, now: Date): string | undefined {
  try {
    const [parsed, privateKey] = [new X509Certificate(certificate), createPrivateKey(key)];
    if (!parsed.checkPrivateKey(privateKey)) return "the key does not belong to the certificate";
    if (!parsed.ca) return "the certificate is not one of a CA";
    if (privateKey.asymmetricKeyDetails?.namedCurve !== "prime256v1")
      return "the key is not one that kpng made (P-256)";
    if (parsed.validToDate <= now) return `the CA expired at ${parsed.validToDate.toISOString()}`;
    return undefined;
  } catch (error) {
    return reasonOf(error);
  }
}

function read(path: string): string {
  try {
    return readRegularFile(path, maxFileBytes).toString("utf8");
  } catch (cause) {
    throw new ProcessError("TLS_FILES", `${path} cannot be read`, { cause });
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

/** Replaces a file by a rename, so that a program that reads it meanwhile finds the old or the new one. */
function replace(path: string, text: string, mode: number): void {
  const draft = `${path}.tmp`;
  rmSync(draft, { force: true });
  writeFileSync(draft, text, { mode, flag: "wx" });
  renameSync(draft, path);
}
