import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, beforeEach } from "vitest";

/** The programs that a test starts, and its folder: after the test both are gone. */
export interface Programs {
  /** Path of a name in the folder. */
  at(name: string): string;
  /** Starts a program of ours; `main` is its path from the root. */
  start(main: string, args: readonly string[], env?: Readonly<Record<string, string>>): Program;
  /** Those that were started by this test. */
  readonly started: readonly Program[];
}

/** The command line. */
export const kpngMain = "services/cli/src/main.ts";

/** Registers what makes the folder before each test of the file, and what kills the programs and removes it after. */
export function usePrograms(): Programs {
  let folder = "";
  const started: Program[] = [];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "kpng-process-"));
  });
  afterEach(async () => {
    for (const program of started.splice(0)) {
      program.kill();
      await program.ended;
    }
    rmSync(folder, { recursive: true });
  });
  return {
    at: (name) => join(folder, name),
    start: (main, args, env = {}) => {
      const program = startProgram(pathToFileURL(resolve(main)), args, env);
      started.push(program);
      return program;
    },
    started,
  };
}
