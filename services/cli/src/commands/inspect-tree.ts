import type { Transport } from "@connectrpc/connect";
import { addOptions, type OptionSpec } from "@kpng/process/options.ts";
import { Command } from "commander";
import type { Options } from "../context/command-context.ts";
import type { InspectCommand } from "../inspect/query/inspect-command.ts";
import { withPlainErrors } from "./plain-errors.ts";

/**
 * How an inspect command reaches its watcher: it connects as the options say, passes the transport to `work`, and
 * disconnects. `inspect.ts` (a remote watcher) and `inspect-source.ts` (a watcher in this process) each have such a
 * function, and make their commands with the functions of this file, which is separate for that reason.
 */
export type WithTransport = (options: Options, work: (transport: Transport) => Promise<void>) => Promise<void>;

/**
 * Turns an inspect command into a command of commander. `path` is how a user calls it, for its examples. The queries
 * themselves are in `inspect/`.
 */
export function makeInspectCommand(
  { name, aliases = [], argument, parseArgument, description, options, examples, run }: InspectCommand,
  moreOptions: readonly OptionSpec[],
  path: string,
  withTransport: WithTransport,
  signal: AbortSignal,
): Command {
  // For "[name...]", commander calls `collect` for each word with the words before it; for "[name]" once.
  const isList = argument?.includes("...") === true;
  const collect = (word: string, before: unknown): unknown => {
    const parsed = parseArgument?.(word) ?? word;
    return isList ? [...((before as readonly string[] | undefined) ?? []), parsed] : parsed;
  };
  const command = addOptions(new Command(name), [...options, ...moreOptions])
    .description(description)
    .aliases([...aliases])
    .addHelpText("after", examples.replaceAll("COMMAND", path));
  if (argument !== undefined) command.argument(argument, "", collect);
  return command.action((...parts: readonly unknown[]) => {
    const self = parts.at(-1) as Command;
    const words = argument === undefined ? [] : ([parts[0] ?? []].flat() as string[]);
    const values = self.optsWithGlobals();
    return withPlainErrors(() => withTransport(values, (transport) => run(transport, words, values, signal)));
  });
}

const groups = { get: "show what a watcher or a backend holds", describe: "show everything about one object" } as const;

/** The command `get` or `describe`, with its subcommands. */
export function makeGroup(name: keyof typeof groups, commands: readonly Command[]): Command {
  return commands.reduce((group, command) => group.addCommand(command), new Command(name).description(groups[name]));
}
