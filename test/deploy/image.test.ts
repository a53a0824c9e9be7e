import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";

const [, buildStage = ""] = readFileSync("deploy/docker/Dockerfile", "utf8").split(/^FROM /m);
const copied = [...buildStage.matchAll(/^COPY (.+) \S+$/gm)].flatMap(([, sources = ""]) => sources.split(" "));

test("the context of the images contains what the build stage copies", () => {
  const kept = [...readFileSync("deploy/docker/Dockerfile.dockerignore", "utf8").matchAll(/^!(.+)$/gm)];
  const paths = kept.map(([, path]) => path);
  expect(copied.length).toBeGreaterThan(3);
  expect(copied.filter((path) => !paths.includes(path))).toEqual([]);
});

test("the build stage copies everything that its bundler needs, and the bundle runs", () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-image-"));
  try {
    for (const path of copied) {
      const isSource = (from: string): boolean => !/\/node_modules$|\.test\.ts$/.test(from);
      cpSync(path, join(folder, path), { recursive: true, filter: isSource });
    }
    symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
    execFileSync(process.execPath, ["deploy/docker/bundle.ts", "out"], { cwd: folder, stdio: "pipe" });
    const version = execFileSync(process.execPath, ["out/kpng.mjs", "version"], { cwd: folder, encoding: "utf8" });
    expect(version).toMatch(/^kpng \d/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
