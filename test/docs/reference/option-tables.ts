import { type CommandOption, optionsByCommand } from "./command-options.ts";
import { type BlockWriter, markdownTable } from "./fill-blocks.ts";

/** Writers of the tables of options, and what they have not written. */
interface OptionTables {
  /**
   * The options that all named commands, or their parents, have and that no earlier table lists for all of them.
   *
   * *Shape of the argument:* `kpng local, kpng * to-local to-*`; `*` stands for a part of a word.
   */
  readonly options: BlockWriter;
  /** The remaining options of the named commands, each with the commands that have it. */
  readonly optionsByCommand: BlockWriter;
  /** The options whose environment name does not follow from the option's name. */
  readonly environment: BlockWriter;
  /** Options that no table lists. *Shape:* `kpng kube: --server`. */
  missing(): readonly string[];
}

/** Returns the writers for one document; the tables must be written in the order of the document. */
export function makeOptionTables(commands = optionsByCommand()): OptionTables {
  const listed = new Set<string>();
  const idOf = (command: string, { long }: CommandOption): string => `${command}: ${long}`;
  const matching = (argument: string): readonly string[] => {
    const patterns = argument.split(", ").map((pattern) => new RegExp(`^${pattern.replaceAll("*", "[a-z-]+")}$`));
    const unused = patterns.find((pattern) => ![...commands.keys()].some((name) => pattern.test(name)));
    if (unused !== undefined) throw new Error(`no command matches ${unused.source}`);
    const found = patterns.flatMap((pattern) => [...commands.keys()].filter((name) => pattern.test(name)));
    return [...new Set(found)];
  };
  /** The command and its parent. */
  const familyOf = (command: string): readonly string[] => [...new Set([command, command.replace(/ \S+$/, "")])];
  const ownerOf = (command: string, option: CommandOption): string | undefined =>
    familyOf(command).find((name) => commands.get(name)?.some((other) => isSame(option, other)));

  const options: BlockWriter = (argument) => {
    const names = matching(argument);
    const [first = ""] = names;
    const shared = familyOf(first).flatMap((parent) =>
      (commands.get(parent) ?? []).flatMap((option) => {
        const owners = names.flatMap((name) => ownerOf(name, option) ?? []);
        const ids = owners.map((owner) => idOf(owner, option));
        return owners.length < names.length || ids.every((id) => listed.has(id)) ? [] : [{ option, ids }];
      }),
    );
    if (shared.length === 0) throw new Error(`no options are left for "${argument}"`);
    for (const { ids } of shared) for (const id of ids) listed.add(id);
    return markdownTable(
      ["Option", "Default", "Description"],
      shared.map(({ option }) => [flagsCell(option), option.standard, option.description]),
    );
  };

  const optionsByCommand: BlockWriter = (argument) => {
    const all = matching(argument);
    const rows: { option: CommandOption; names: string[] }[] = [];
    for (const name of all) {
      for (const option of commands.get(name) ?? []) {
        if (listed.has(idOf(name, option))) continue;
        const row = rows.find((known) => isSame(known.option, option));
        if (row === undefined) rows.push({ option, names: [name] });
        else row.names.push(name);
        listed.add(idOf(name, option));
      }
    }
    return markdownTable(
      ["Option", "Commands", "Default", "Description"],
      rows.map(({ option, names }) => [
        flagsCell(option),
        formatCommands(names, all),
        option.standard,
        option.description,
      ]),
    );
  };

  const environment: BlockWriter = () => {
    const odd = new Map<string, Set<string>>();
    for (const [command, found] of commands) {
      for (const { long, env } of found) {
        if (env === undefined || env === `KPNG_${long.slice(2).replaceAll("-", "_").toUpperCase()}`) continue;
        const key = `\`${long}\` | \`${env}\``;
        odd.set(key, (odd.get(key) ?? new Set()).add(command));
      }
    }
    const rows = [...odd].map(([key, names]) => [
      ...key.split(" | "),
      formatCommands(
        [...names],
        [...commands].filter(([, { length }]) => length > 0).map(([name]) => name),
      ),
    ]);
    return markdownTable(["Option", "Variable", "Commands"], rows);
  };

  const missing = (): readonly string[] =>
    [...commands].flatMap(([name, found]) => found.map((option) => idOf(name, option))).filter((id) => !listed.has(id));

  return { options, optionsByCommand, environment, missing };
}

const sources = ["kube", "file", "api", "replay", "simulate"];
const source = new RegExp(`^(${sources.join("|")}) `);

function isSame(option: CommandOption, other: CommandOption): boolean {
  return (
    option.flags === other.flags &&
    withoutPeer(option.description) === withoutPeer(other.description) &&
    option.standard === other.standard
  );
}

/** The description of an option for the connection to a watcher, whichever watcher the command connects to. */
function withoutPeer(description: string): string {
  return description.replace(/\bconnections? to the (upstream )?watchers?\b/, "connection");
}

function flagsCell({ flags, short }: CommandOption): string {
  return short === "" ? `\`${flags}\`` : `\`${flags}\`, \`${short}\``;
}

/**
 * Returns a short list of commands: `SOURCE` for what all sources have, a group for all of its commands, and nothing
 * for a command after a source that exists without one too, and for the two ways in which `kpng` runs a backend of the
 * list (`local to-nft` beside `kpng-nft`). A parent in `all` is no group, but a command itself, as
 * `top` is beside `top services`.
 */
function formatCommands(names: readonly string[], all: readonly string[]): string {
  const shorten = (list: readonly string[]): readonly string[] => {
    const words = list.map((name) => name.replace(/^kpng /, ""));
    const collapsed = words.flatMap((name) => {
      const rest = name.replace(source, "");
      if (rest === name || !sources.every((one) => words.includes(`${one} ${rest}`))) return [name];
      return words.includes(rest) ? [] : [`SOURCE ${rest}`];
    });
    const backend = /^(?:local|SOURCE to-local) to-/;
    return [...new Set(collapsed)].filter(
      (name) => !backend.test(name) || !words.includes(name.replace(backend, "kpng-")),
    );
  };
  const plain = all.map((name) => name.replace(/^kpng /, ""));
  const known = [...shorten(all), ...plain, ...plain.map((name) => name.replace(source, "SOURCE "))];
  const byParent = Map.groupBy(shorten(names), (name) => name.slice(0, Math.max(0, name.lastIndexOf(" "))));
  const parts = [...byParent].flatMap(([parent, children]) => {
    const siblings = new Set(known.filter((name) => name.startsWith(`${parent} `)));
    const isGroup = parent !== "" && !known.includes(parent) && siblings.size > 1;
    return isGroup && siblings.size === children.length ? [parent] : children;
  });
  return [...new Set(parts)].map((part) => `\`${part}\``).join(", ");
}
