import { execFileSync, spawnSync } from "node:child_process";
import { symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const input = resolve("test/fixtures/kpng/input.yaml");
const services = "service/default/noeps\nservice/default/web\n";

describe("kpng as a folder", () => {
  const folder = temporaryFolder(afterAll);
  beforeAll(() => {
    execFileSync(process.execPath, ["deploy/images/bundle.ts", folder], { stdio: "pipe" });
  });

  test.each([
    [["--version"], /^kpng \d/],
    [["file", "-i", input, "get", "services", "-o", "name"], new RegExp(`^${services}$`)],
    [["file", "-i", input, "get", "svc", "web", "-o", "yaml"], /^---\nnamespace: default\nname: web\n/],
    [["file", "-i", input, "to-local", "to-json", "--node-name", "n1", "--once"], /^\{"Service":/],
    [["certificates", "client", "n1", "--right", "kpng://node/n1", "--folder", "ca"], /^$/],
    [["--help"], /get .*list what a watcher/],
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
    const link = join(temporaryFolder(), "kpng");
    symlinkSync(resolve("services/cli/bin/kpng.mjs"), link);
    const args = ["file", "-i", input, "get", "services", "-o", "name"];
    expect(execFileSync(link, args, { cwd: tmpdir(), encoding: "utf8" })).toBe(services);
  });
});
