import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect, createServer, type TLSSocket, type TlsOptions } from "node:tls";
import { minTlsVersion } from "@kpng/process/credential-files.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { rightsOfCertificate } from "@kpng/watcher/identity/rights.ts";
import { beforeEach, expect, test } from "vitest";
import { listen } from "../../../../test/cluster/ports.ts";
import { runKpng } from "../../../../test/docs/run-kpng.ts";
import { rightNameOf, subjectNameOf } from "../commands/certificates.ts";
import { type CertificateRequest, issueCertificate, openAuthority, type PemPair, writePair } from "./issue.ts";

const now = new Date();
let folder = "";
beforeEach(() => {
  folder = join(temporaryFolder(), "ca");
});

const serving: CertificateRequest = {
  commonName: "kpng-watcher",
  names: ["127.0.0.1", "::1", "watcher.example"].map(subjectNameOf),
  usage: "server",
  days: 30,
};
const client: CertificateRequest = {
  commonName: "n1",
  names: ["kpng://node/n1", "kpng://inspection"].map(rightNameOf),
  usage: "client",
  days: 30,
};

/** Returns what a server knows of its client after a handshake, or the code of the error with which it failed. */
async function shakeHands(ca: string, server: PemPair, host: string, presented: PemPair): Promise<string> {
  const options: TlsOptions = {
    key: server.key,
    cert: server.certificate,
    ca,
    requestCert: true,
    minVersion: minTlsVersion,
  };
  let seen = "";
  const listener = createServer(options, (socket: TLSSocket) => {
    seen = socket.getPeerX509Certificate()?.subjectAltName ?? "";
    socket.end("hello");
  });
  listener.on("tlsClientError", () => undefined);
  const port = await listen(listener);
  try {
    const socket = connect({
      host: "127.0.0.1",
      port,
      servername: host === "127.0.0.1" ? "" : host,
      ca,
      key: presented.key,
      cert: presented.certificate,
    });
    await once(socket.resume(), "close");
    return seen;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  } finally {
    listener.close();
  }
}

test("a watcher proves its address or name, and a client its rights", async () => {
  const authority = await openAuthority(folder, now);
  const server = await issueCertificate(authority, serving, now);
  const presented = await issueCertificate(authority, client, now);
  const ca = authority.certificate;
  for (const host of ["127.0.0.1", "watcher.example"]) {
    const name = await shakeHands(ca, server, host, presented);
    expect(rightsOfCertificate(name, "n1")).toMatchObject({
      nodes: new Set(["n1"]),
      hasState: false,
      hasInspection: true,
    });
  }
  expect(new X509Certificate(server.certificate).checkIP("::1")).toBe("::1");
  expect(await shakeHands(ca, server, "other.example", presented)).toBe("ERR_TLS_CERT_ALTNAME_INVALID");
});

test("the certificate of a client is refused from a server, and that of another CA from either", async () => {
  const authority = await openAuthority(folder, now);
  const other = await openAuthority(`${folder}-2`, now);
  const presented = await issueCertificate(authority, client, now);
  const server = await issueCertificate(authority, serving, now);
  const asServer = await issueCertificate(authority, { ...serving, usage: "client" }, now);
  expect(await shakeHands(authority.certificate, asServer, "127.0.0.1", presented)).toBe("INVALID_PURPOSE");
  expect(await shakeHands(other.certificate, server, "127.0.0.1", presented)).toMatch(/^UNABLE_TO_/);
  // While a CA is replaced, nodes trust both.
  expect(await shakeHands(other.certificate + authority.certificate, server, "127.0.0.1", presented)).toContain("URI:");
});

test("a certificate is valid for a machine whose clock is behind, and no longer than its CA", async () => {
  const authority = await openAuthority(folder, now);
  const dayMs = 86_400_000;
  const issue = async (days: number) =>
    new X509Certificate((await issueCertificate(authority, { ...serving, days }, now)).certificate);
  const short = await issue(30);
  expect(now.getTime() - short.validFromDate.getTime()).toBeGreaterThan(dayMs / 25);
  expect((short.validToDate.getTime() - now.getTime()) / dayMs).toBeCloseTo(30, 1);
  const ca = new X509Certificate(authority.certificate);
  expect((await issue(3_650)).validToDate).toEqual(ca.validToDate);
  expect(ca.checkIssued(ca)).toBe(true);
  expect(short.checkIssued(ca)).toBe(true);
});

test("the CA of a folder is used again, and keys can be read by their owner only", async () => {
  const { isNew, ...first } = await openAuthority(folder, now);
  expect(isNew).toBe(true);
  expect(await openAuthority(folder, now)).toEqual({ ...first, isNew: false });
  writePair(folder, "n1", await issueCertificate(first, client, now));
  const renewed = await issueCertificate(first, client, now);
  writePair(folder, "n1", renewed);
  expect(readFileSync(join(folder, "n1.crt"), "utf8")).toBe(renewed.certificate);
  const mode = (name: string): string => (statSync(join(folder, name)).mode & 0o777).toString(8);
  expect(readdirSync(folder).map((name) => `${name} ${mode(name)}`)).toEqual([
    "ca.crt 644",
    "ca.key 600",
    "n1.crt 644",
    "n1.key 600",
  ]);
  expect(mode(".")).toBe("700");
});

test("a pair that cannot be written leaves the earlier key as it was", async () => {
  const authority = await openAuthority(folder, now);
  const [keyPath = "", certificatePath = ""] = writePair(folder, "n1", authority);
  rmSync(certificatePath);
  mkdirSync(join(certificatePath, "in the way"), { recursive: true });
  const renewed = await issueCertificate(authority, client, now);
  expect(() => writePair(folder, "n1", renewed)).toThrow("[OUTPUT_FAILED]");
  expect(readFileSync(keyPath, "utf8")).toBe(authority.key);
});

test("a CA that is incomplete, expired, mixed up or not a CA is refused, and stays as it is", async () => {
  const authority = await openAuthority(folder, now);
  const leaf = await issueCertificate(authority, serving, now);
  const other = await openAuthority(`${folder}-2`, now);
  const path = (name: string): string => join(folder, name);
  const isRefused = async (at = now): Promise<void> => {
    const before = readdirSync(folder).map((name) => readFileSync(path(name), "utf8"));
    await expect(openAuthority(folder, at)).rejects.toThrow(/^\[TLS_FILES\] .*ca.crt with .*ca.key cannot be used/);
    expect(readdirSync(folder).map((name) => readFileSync(path(name), "utf8"))).toEqual(before);
  };
  const put = (pair: PemPair): void => {
    writeFileSync(path("ca.key"), pair.key);
    writeFileSync(path("ca.crt"), pair.certificate);
  };
  await isRefused(new Date(now.getTime() + 4_000 * 86_400_000));
  for (const pair of [{ ...authority, key: other.key }, leaf, { ...authority, certificate: "nothing" }]) {
    put(pair);
    await isRefused();
  }
  rmSync(path("ca.crt"));
  await isRefused();
});

test("a folder that cannot be written is named", async () => {
  const file = join(folder, "..", "file");
  writeFileSync(file, "");
  await expect(openAuthority(join(file, "ca"), now)).rejects.toThrow(
    `[OUTPUT_FAILED] certificates cannot be written to ${file}/ca`,
  );
});

test.each([
  [["serving"], "a serving certificate needs a name"],
  [["client", "ca", "--right", "kpng://state"], 'the name "ca" cannot be that of a file'],
  [["client", "n1"], "a client certificate without --right allows nothing"],
])("kpng certificates %j is refused", async (words, reason) => {
  const { code, said } = await runKpng(["certificates", ...words]);
  expect([code, said]).toEqual([1, expect.stringContaining(reason)]);
});

test.each(["", "a b", "https://10.0.0.1", "10.0.0.1:12090", "-a", "a..b", "*"])("the name %j is refused", (name) => {
  expect(() => subjectNameOf(name)).toThrow(`[BAD_OPTION] --name "${name}" is neither an address nor a DNS name`);
});

test.each(["", "node/n1", "kpng://node/", "kpng://node/N1", "kpng://everything"])(
  "the right %j is refused",
  (right) => {
    expect(() => rightNameOf(right)).toThrow(`[BAD_OPTION] --right "${right}" is not a right`);
  },
);
