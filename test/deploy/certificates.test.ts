import { spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { rightsOfCertificate } from "@kpng/watcher/identity/rights.ts";
import { beforeEach, expect, test } from "vitest";

let cwd = "";
beforeEach(() => {
  cwd = temporaryFolder();
});

function issue(...words: readonly string[]) {
  return spawnSync(resolve("deploy/certificates.sh"), words, { cwd, encoding: "utf8" });
}

const pathOf = (file: string): string => join(cwd, "kpng-certificates", file);
const read = (name: string): X509Certificate => new X509Certificate(readFileSync(pathOf(`${name}.crt`)));
const usage = { server: "1.3.6.1.5.5.7.3.1", client: "1.3.6.1.5.5.7.3.2" };

test("a watcher's certificate has the addresses and DNS names, and cannot be that of a client", () => {
  expect(issue("serving", "10.0.0.11", "fd00::11", "watcher.example").stderr).toContain("new CA");
  const serving = read("serving");
  expect(serving.checkIssued(read("ca")) && serving.verify(read("ca").publicKey)).toBe(true);
  expect([serving.checkIP("10.0.0.11"), serving.checkIP("fd00::11"), serving.checkHost("watcher.example")]).toEqual([
    "10.0.0.11",
    "fd00::11",
    "watcher.example",
  ]);
  expect([serving.ca, serving.keyUsage]).toEqual([false, [usage.server]]);
  expect(statSync(pathOf("serving.key")).mode & 0o777).toBe(0o600);
});

test("a client's certificate has its rights, of the CA that is there", () => {
  issue("serving", "10.0.0.11");
  const ca = readFileSync(pathOf("ca.crt"), "utf8");
  expect(issue("client", "n1", "kpng://node/n1", "kpng://inspection")).toMatchObject({ status: 0 });
  expect(readFileSync(pathOf("ca.crt"), "utf8")).toBe(ca);
  expect(read("n1").keyUsage).toEqual([usage.client]);
  expect(rightsOfCertificate(read("n1").subjectAltName, "n1")).toMatchObject({
    nodes: new Set(["n1"]),
    hasState: false,
    hasInspection: true,
  });
});

test.each([
  { words: ["serving"], says: "give at least one address" },
  { words: ["serving", "a b"], says: '"a b" is neither an address nor a DNS name' },
  { words: ["client", "n1"], says: "give at least one" },
  { words: ["client", "n1", "kpng://nodes"], says: '"kpng://nodes" is not a right' },
  { words: ["client", "ca", "kpng://state"], says: '"ca" cannot be the name' },
])("$words is refused", ({ words, says }) => {
  const { status, stderr } = issue(...words);
  expect([status, stderr]).toEqual([2, expect.stringContaining(says)]);
});
