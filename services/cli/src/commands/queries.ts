import { Command } from "commander";
import { makeInspect } from "./inspect.ts";
import { makeVersion } from "./version.ts";

/**
 * Makes the part of `kpng`'s command tree that asks a running watcher or backend. `makeKpng` has the same commands
 * among all others; `startKpng` chooses.
 */
export function makeQueries(signal: AbortSignal): Command {
  const kpng = new Command("kpng");
  for (const command of [...makeInspect(signal), makeVersion(signal)]) kpng.addCommand(command);
  return kpng;
}
