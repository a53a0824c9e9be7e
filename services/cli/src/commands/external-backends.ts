import { ProcessError } from "@kpng/process/process-error.ts";
import { Command } from "commander";
import type { Options } from "../context/command-context.ts";

/**
 * Makes `command` accept any other `to-NAME`: `run` gets the name and all further arguments, for the program
 * `kpng-NAME` on the PATH. A backend can therefore be installed without a change to `kpng`.
 *
 * `makeSource` and `makeLocal` call it. Separate, because they parse such a command alike but run it differently.
 */
export function addExternalBackends(
  command: Command,
  run: (name: string, args: readonly string[], options: Options) => Promise<void>,
): void {
  const any = new Command("*").argument("[arguments...]").allowUnknownOption().helpOption(false);
  any.action((words: readonly string[], _options: Options, self: Command) => {
    const [word = "", ...args] = words;
    if (!/^to-[a-z0-9-]+$/.test(word))
      throw new ProcessError("BAD_OPTION", `unknown backend "${word}": expected to-NAME`);
    return run(word.slice("to-".length), args, self.optsWithGlobals());
  });
  command.addCommand(any, { hidden: true });
}
