import type { Binaries, Program } from "../cluster/binaries.ts";

/** Paths of programs that `findPrograms` has found. */
export type ProgramPaths = Extract<Binaries, { kind: "found" }>["paths"];

/** Returns the path of a program. Errors: it was not asked for. */
export function pathOf(paths: ProgramPaths, program: Program): string {
  const path = paths[program];
  if (path === undefined) throw new Error(`${program} is missing in the list of programs`);
  return path;
}
