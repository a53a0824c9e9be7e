import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, symlinkSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { expect, test } from "vitest";
import { startOtlpReceiver } from "../process/otlp-traces.ts";

const dockerfile = readFileSync("deploy/images/Dockerfile", "utf8");
const copiedBy = (text: string): readonly string[] =>
  [...text.matchAll(/^COPY ([^-].*) \S+$/gm)].flatMap(([, sources = ""]) => sources.split(" "));
const copied = copiedBy(dockerfile.split(/^FROM /m).find((stage) => / AS build$/m.test(stage)) ?? "");

test("the context of the images contains what the Dockerfile copies", () => {
  const kept = [...readFileSync("deploy/images/Dockerfile.dockerignore", "utf8").matchAll(/^!(.+)$/gm)];
  const isKept = (path: string): boolean => kept.some(([, kept = ""]) => path === kept || path.startsWith(`${kept}/`));
  expect(copiedBy(dockerfile).length).toBeGreaterThan(4);
  expect(copiedBy(dockerfile).filter((path) => !isKept(path))).toEqual([]);
});

/** Time limit for bundling and one run of a program on a busy machine. */
const timeoutMs = 120_000;

// The bundle is written to a folder without packages above it, as in an image.
test("the bundle needs no package, runs, and exports traces", { timeout: timeoutMs }, async ({ signal }) => {
  const folder = temporaryFolder();
  const outside = temporaryFolder();
  const receiver = await startOtlpReceiver();
  try {
    for (const path of copied) {
      const isSource = (from: string): boolean => !/\/node_modules$|\.test\.ts$/.test(from);
      cpSync(path, join(folder, path), { recursive: true, filter: isSource });
    }
    symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
    execFileSync(process.execPath, ["deploy/images/bundle.ts", outside], { cwd: folder, stdio: "pipe" });
    const program = join(outside, "kpng.mjs");
    expect(execFileSync(process.execPath, [program, "version"], { encoding: "utf8" })).toMatch(/^kpng \d/);

    // kpng-nft loads this module when it opens its first socket.
    execFileSync(process.execPath, ["--eval", 'require("koffi").load(null)'], { cwd: outside, stdio: "pipe" });

    const input = resolve("test/fixtures/kpng/input.yaml");
    const args = ["file", "--input", input, "to-local", "to-json", "--once", "--node-name", "n1"];
    const run = startProgram(pathToFileURL(program), args, receiver.environment);
    expect(await run.ended, run.stderr()).toBe(0);
    expect(run.stderr()).not.toContain("traces failed");
    await receiver.until((spans) => spans.length > 0, signal);
  } finally {
    await receiver[Symbol.asyncDispose]();
  }
});
