import { Command } from "commander";
import { makeInspect } from "./inspect.ts";
import { makeVersion } from "./version.ts";

/**
 * Makes the part of `kpng`'s command tree that asks a running watcher or backend. `startKpng` calls it for such a
 * command. Separate from `makeKpng`, which has all commands and loads three times as much code.
 */
export function makeQueries(signal: AbortSignal): Command {
  const kpng = new Command("kpng");
  for (const command of [...makeInspect(signal), makeVersion(signal)]) kpng.addCommand(command);
  return kpng;
}
