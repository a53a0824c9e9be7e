import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { runKpng } from "./run-kpng.ts";

// What the README says that commands print, with the watcher that it starts. `test/documents` types every command.

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const folder = temporaryFolder(afterAll);
let watcher: Program;

beforeAll(async () => {
  const socket = `unix://${join(folder, "api.sock")}`;
  const args = ["file", "-i", "test/fixtures/kpng/input.yaml", "to-api", "--listen", socket];
  watcher = startProgram(pathToFileURL(resolve("services/cli/src/main.ts")), args);
  await watcher.said('"msg":"listening"');
  await watcher.said('"msg":"input read"');
  // The documents use the default address.
  vi.stubEnv("KPNG_API", socket);
});

afterAll(async () => {
  vi.unstubAllEnvs();
  watcher.kill();
  await watcher.ended;
});

/** A command of a console block without a pipe, and the lines below it. */
function consoleCommands(path: string): readonly (readonly [command: string, printed: string])[] {
  const blocks = [...readFileSync(path, "utf8").matchAll(/^```console\n([\s\S]*?)^```$/gm)];
  return blocks.flatMap(([, block = ""]) =>
    [...block.matchAll(/^\$ (?:npx )?(kpng [^|\n]*)\n((?:(?!\$ ).*\n)*)/gm)].map(
      ([, command = "", printed = ""]) => [command, printed.trimEnd()] as const,
    ),
  );
}

test.each(consoleCommands("README.md"))("README.md: %s prints what is shown", async (command, printed) => {
  const { out, said, code } = await runKpng(command.split(" ").slice(1));
  expect(code, said).toBe(0);
  const isShortened = printed.endsWith("\n…");
  if (isShortened) expect(out).toContain(printed.slice(0, -2));
  else expect(out.trimEnd()).toBe(printed);
});
