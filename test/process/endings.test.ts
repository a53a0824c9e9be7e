import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

/** How the programs end: when they are told to, when they cannot work, and when they were called wrongly. */
let folder: string;
const programs: Program[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-endings-"));
});

afterEach(async () => {
  for (const program of programs.splice(0)) {
    program.kill();
    await program.ended;
  }
  rmSync(folder, { recursive: true });
});

function kpng(args: readonly string[], env: Record<string, string> = {}): Program {
  const program = startProgram(pathToFileURL(resolve("services/cli/src/main.ts")), args, env);
  programs.push(program);
  return program;
}

const at = (name: string): string => join(folder, name);

describe("told to end while its input has not ended", () => {
  test.each([
    { name: "standard input", input: () => "-" },
    {
      name: "a pipe without a writer",
      input: () => {
        execFileSync("mkfifo", [at("pipe")]);
        return at("pipe");
      },
    },
  ])("$name: a watcher ends", async ({ input }) => {
    const program = kpng(["file", "-i", input(), "to-api", "--listen", `unix://${at("api.sock")}`]);
    await program.said('"msg":"listening"');
    program.stop();
    expect(await program.ended).toBe(0);
  });
});
