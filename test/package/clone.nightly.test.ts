import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const input = resolve("test/fixtures/kpng/input.yaml");
const services = "service/default/noeps\nservice/default/web\n";

describe("kpng as one file", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "kpng-bundle-"));
    execFileSync(process.execPath, ["deploy/npm/bundle-kpng.ts", join(folder, "kpng.mjs")], { stdio: "pipe" });
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test.each([
    [["--version"], /^kpng \d/],
    [["file", "-i", input, "get", "services", "-o", "name"], new RegExp(`^${services}$`)],
    [["file", "-i", input, "get", "svc", "web", "-o", "yaml"], /^---\nnamespace: default\nname: web\n/],
    [["file", "-i", input, "to-local", "to-json", "--node-name", "n1", "--once"], /^\{"Service":/],
    [["certificates", "client", "n1", "--right", "kpng://node/n1", "--folder", "ca"], /^$/],
    [["--help"], /get .*show what a watcher/],
  ])("runs %j outside the repository", (args, expected) => {
    const env = { PATH: process.env.PATH ?? "" };
    const { stdout, stderr, status } = spawnSync(process.execPath, ["kpng.mjs", ...args], {
      cwd: folder,
      env,
      encoding: "utf8",
    });
    expect(status, stderr).toBe(0);
    expect(stdout).toMatch(expected);
  });
});

describe("a command of the clone", () => {
  test("runs by npm run -s without npm's banner, so that its output can be piped", () => {
    const args = ["run", "-s", "kpng", "--", "file", "-i", input, "get", "services", "-o", "name"];
    expect(execFileSync("npm", args, { encoding: "utf8" })).toBe(services);
  });

  test("runs by the link that npm makes, from any folder", () => {
    const link = join(mkdtempSync(join(tmpdir(), "kpng-link-")), "kpng");
    symlinkSync(resolve("services/cli/bin/kpng.mjs"), link);
    const args = ["file", "-i", input, "get", "services", "-o", "name"];
    expect(execFileSync(link, args, { cwd: tmpdir(), encoding: "utf8" })).toBe(services);
    rmSync(join(link, ".."), { recursive: true });
  });
});

describe("the packages of a clone", () => {
  let clone: string;
  const lock = (version: string) => ({
    packages: {
      "": {},
      "node_modules/a": { version },
      "node_modules/foreign": { version: "1.0.0", optional: true, os: ["plan9"], cpu: [process.arch] },
    },
  });

  /** Runs a script in the clone, and returns whether npm was called. */
  const installs = (): boolean => {
    const called = join(clone, "npm-called");
    rmSync(called, { force: true });
    const env = { PATH: `${clone}:${process.env.PATH}` };
    execFileSync(process.execPath, [join(clone, "deploy/development/run.mjs"), "script.mjs"], { env, stdio: "pipe" });
    return existsSync(called);
  };

  beforeEach(() => {
    clone = mkdtempSync(join(tmpdir(), "kpng-clone-"));
    mkdirSync(join(clone, "deploy/development"), { recursive: true });
    mkdirSync(join(clone, "node_modules/.bin"), { recursive: true });
    cpSync("deploy/development/run.mjs", join(clone, "deploy/development/run.mjs"));
    symlinkSync(process.execPath, join(clone, "node_modules/.bin/node"));
    writeFileSync(join(clone, "script.mjs"), "");
    writeFileSync(join(clone, "npm"), '#!/bin/sh\ntouch "$(dirname "$0")/npm-called"\n');
    chmodSync(join(clone, "npm"), 0o755);
    writeFileSync(join(clone, "package-lock.json"), JSON.stringify(lock("1.0.0")));
    return () => rmSync(clone, { recursive: true });
  });

  test("are installed once: npm ci is not repeated by npm run demo", () => {
    const { "node_modules/a": a } = lock("1.0.0").packages;
    writeFileSync(
      join(clone, "node_modules/.package-lock.json"),
      JSON.stringify({ packages: { "node_modules/a": a } }),
    );
    expect(installs()).toBe(false);
  });

  test("are installed if there are none, or one has another version", () => {
    expect(installs()).toBe(true);
    const { "node_modules/a": a } = lock("0.9.0").packages;
    writeFileSync(
      join(clone, "node_modules/.package-lock.json"),
      JSON.stringify({ packages: { "node_modules/a": a } }),
    );
    expect(installs()).toBe(true);
  });
});
