import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createOwnFile, openOwnFile, readRegularFile } from "./regular-file.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-files-"));
});
afterEach(() => rmSync(folder, { recursive: true }));
const at = (name: string): string => join(folder, name);

test("files of mounted Secrets, which are links to links, can be read", () => {
  mkdirSync(at("..2026"));
  writeFileSync(at("..2026/tls.key"), "key");
  symlinkSync("..2026", at("..data"));
  symlinkSync("..data/tls.key", at("tls.key"));
  expect(readRegularFile(at("tls.key"), 10).toString()).toBe("key");
});

test("a FIFO, a device, a folder and a file above the limit are refused at once", async () => {
  execFileSync("mkfifo", [at("fifo")]);
  mkdirSync(at("folder"));
  writeFileSync(at("large"), "12345678901");
  for (const path of [at("fifo"), "/dev/zero", at("folder")]) {
    expect(() => readRegularFile(path, 10)).toThrow("not a regular file");
    await expect(openOwnFile(path, 10)).rejects.toThrow("not a regular file");
  }
  expect(() => readRegularFile(at("large"), 10)).toThrow("it has 11 bytes; the limit is 10");
});

test("a created file replaces a planted link or FIFO, and does not change what the link points to", async () => {
  writeFileSync(at("victim"), "untouched");
  symlinkSync("victim", at("link"));
  execFileSync("mkfifo", [at("fifo")]);
  for (const name of ["link", "fifo"]) {
    const file = await createOwnFile(at(name));
    await file.writeFile("ours");
    await file.close();
    expect(readFileSync(at(name), "utf8")).toBe("ours");
    expect(statSync(at(name)).mode & 0o777).toBe(0o600);
  }
  expect(readFileSync(at("victim"), "utf8")).toBe("untouched");
  symlinkSync("victim", at("other"));
  await expect(openOwnFile(at("other"), 100)).rejects.toMatchObject({ code: "ELOOP" });
});
