import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterEach, beforeEach } from "vitest";
import { programFile, programs } from "./program-file.ts";

/** Programs and temporary folder of a test, removed after it. */
export interface Programs {
  /** Returns the path of a name in the folder. */
  at(name: string): string;
  /** Starts a program of ours; `main` is the path of its main file from the root. See {@link startProgram}. */
  start(
    main: string,
    args: readonly string[],
    env?: Readonly<Record<string, string>>,
    prefix?: readonly string[],
  ): Program;
  /** Programs started by this test. */
  readonly started: readonly Program[];
}

/** Main file of the command line. */
export const kpngMain = "services/cli/src/main.ts";

/** Registers hooks that create the folder before each test, and kill the programs and remove the folder after it. */
export function usePrograms(): Programs {
  let folder = "";
  const started: Program[] = [];
  beforeEach(() => {
    folder = temporaryFolder();
  });
  afterEach(async () => {
    for (const program of started.splice(0)) {
      program.kill();
      await program.ended;
    }
  });
  return {
    at: (name) => join(folder, name),
    start: (main, args, env, prefix) => {
      const program = startProgram(pathToFileURL(fileOf(main)), args, env, prefix);
      started.push(program);
      return program;
    },
    started,
  };
}

function fileOf(main: string): string {
  const program = programs.find((name) => main === `services/${name}/src/main.ts`);
  return program === undefined ? resolve(main) : programFile(program);
}
