import { runProcess } from "@kpng/process/run/run-process.ts";
import { arrangeWords } from "./commands/refuse-habits.ts";

/** Commands that only ask a running watcher or backend. They need a third of the code. */
export const queries: ReadonlySet<string> = new Set([
  "get",
  "describe",
  "explain",
  "status",
  "analyze",
  "trace",
  "top",
  "record",
  "bug-report",
  "version",
]);

/**
 * Runs the command line. A query is parsed by a tree that has only queries; everything else, also help and completion,
 * by the whole tree. `main.ts` calls it. Separate from `main.ts`, which must first enable the compile cache.
 */
export async function startKpng(argv: readonly string[]): Promise<never> {
  const make = queries.has(argv[2] ?? "")
    ? (await import("./commands/queries.ts")).makeQueries
    : (await import("./kpng.ts")).makeKpng;
  return await runProcess(make, argv, arrangeWords);
}
