import { X509Certificate } from "node:crypto";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import { dial } from "@kpng/process/connection/dial.ts";
import { readClientTls, readServerTls } from "@kpng/process/credential-files.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { makeCertificates, type TestCertificates } from "@kpng/process/testing/certificates.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openStream, WatchedServer } from "../../testing/watched-server.ts";

let watched: WatchedServer;
let folder: string;
let old: TestCertificates;
let renewed: TestCertificates;
let lines: string[];
let health: Health;
beforeEach(async () => {
  folder = temporaryFolder();
  [old, renewed] = [makeCertificates(), makeCertificates()];
  lines = [];
  health = new Health();
  install("server", old);
  install("client", old);
  watched = new WatchedServer();
  await watched.serve({
    ...{ tls: readServerTls("", paths("server")), reloadMs: 10, drainMs: 0, trustsLoopback: false, health },
    log: createLog("info", (line) => lines.push(line)),
  });
});
afterEach(() => watched.stop());

function paths(role: "server" | "client") {
  return { key: join(folder, `${role}.key`), crt: join(folder, `${role}.crt`), ca: join(folder, `${role}-ca.crt`) };
}

/** Writes the files of a role. `ca` defaults to the issuer's. */
function install(role: "server" | "client", issuer: TestCertificates, ca = issuer.ca): void {
  const { key, crt } = role === "server" ? issuer.server : issuer.clientWith(["kpng://node/n1"]);
  copyFileSync(key, paths(role).key);
  copyFileSync(crt, paths(role).crt);
  copyFileSync(ca, paths(role).ca);
}

/** Returns the certificate that the server shows to a new client. */
function shown(): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ ...watched.socketAddress, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerX509Certificate()?.fingerprint256 ?? "");
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

const certificateReason = () => health.parts.get("certificate")?.reason;
const limit = { timeout: 30_000 };
const dialWatcher = () => dial({ api: `https://${watched.address}`, tls: readClientTls(paths("client")) });

test("a renewed certificate of the same CA is shown to new clients and by the metric, and open streams continue", async () => {
  const validUntil = (): number => new X509Certificate(readFileSync(paths("server").crt)).validToDate.getTime() / 1000;
  const expiry = () => watched.metric("kpng_certificate_expiry_timestamp_seconds");
  expect(await expiry()).toBe(validUntil());
  const { ended } = await openStream(dialWatcher(), "n1");
  const end = ended.catch(() => undefined).then(() => "ended");
  const { key, crt } = old.clientWith([], 3);
  copyFileSync(key, paths("server").key);
  copyFileSync(crt, paths("server").crt);
  await expect.poll(shown, limit).toBe(new X509Certificate(readFileSync(crt)).fingerprint256);
  expect(await expiry()).toBe(validUntil());
  // The renewed certificate is valid for three days, the first one for longer than two weeks.
  expect(certificateReason()).toMatch(/^expires at 20/);
  expect(await Promise.race([end, Promise.resolve("open")])).toBe("open");
});

const brokenBlock = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

test.each([
  { name: "garbage", text: () => "garbage" },
  {
    name: "a chain whose second certificate is broken",
    text: () => readFileSync(old.server.crt, "utf8") + brokenBlock,
  },
])("$name is logged once, and the listener keeps the old files", async ({ text }) => {
  const before = await shown();
  expect(certificateReason()).toBe("");
  writeFileSync(paths("server").crt, text());
  await expect.poll(() => lines.join(""), limit).toContain("new TLS files are unusable");
  expect(certificateReason()).toContain("new TLS files are unusable");
  expect(await shown()).toBe(before);
  await openStream(dialWatcher(), "n1");
});

test("after a change of the CA, open streams continue, and new connections need a certificate of the new one", async () => {
  const { ended } = await openStream(dialWatcher(), "n1");
  install("server", renewed);
  // The client still has the old files: it does not trust the watcher, nor the watcher it.
  const isRefused = () =>
    openStream(dialWatcher(), "n1").then(
      () => "stream",
      () => "refused",
    );
  await expect.poll(isRefused, limit).toBe("refused");
  expect(
    await Promise.race([ended.catch(() => "ended"), new Promise((resolve) => setTimeout(resolve, 100, "open"))]),
  ).toBe("open");
  install("client", renewed);
  await openStream(dialWatcher(), "n1");
});
