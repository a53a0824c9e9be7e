import type { Command } from "commander";

/**
 * Brings a command line in kubectl's word order into commander's: `-n shop get svc/web` becomes `get svc -n shop web`.
 * In kubectl, flags may come before the command or the kind, a kind and a name may be one word, and a kind may have a
 * version or group (`services.v1`). Everything else stays as it is.
 *
 * `words` are those after the program. `arrangeWords` calls the function before commander parses the words. Pure.
 *
 * Separate from the command tree, because commander chooses a subcommand before it knows that command's options.
 */
export function kubectlWords(words: readonly string[], program: Command): readonly string[] {
  const args = optionsLast(words, program);
  const start = findGet(args, program);
  if (start === undefined) return args;
  const { get, at } = start;
  const kinds = get.commands;
  const kindAt = findOperand(args, at, [get, ...kinds]);
  if (kindAt === undefined) return args;
  const word = args[kindAt] ?? "";
  const [prefix = "", name] = word.split(/\/(.*)/s);
  const kind = findCommand(kinds, kindOf(prefix));
  if (kind === undefined) return args;
  const rest = args.slice(at).toSpliced(kindAt - at, 1, ...(name === undefined || name === "" ? [] : [name]));
  // Further words such as svc/db, but not shop/db after a kind of its own: that is a namespace.
  const names = word === prefix ? rest : rest.map((one) => withoutKind(one, kind));
  return [...args.slice(0, at), kind.name(), ...names];
}

/** Moves options before a command behind it: `-n shop get` becomes `get -n shop`. Only options that it knows. */
function optionsLast(words: readonly string[], program: Command): readonly string[] {
  const isOwn = program.options.some(({ short, long }) => words[0] === short || words[0] === long);
  if (words[0]?.startsWith("-") !== true || isOwn) return words;
  const { commands } = program;
  const at = findOperand(words, 0, [...commands, ...commands.flatMap((command) => command.commands)]);
  const command = at === undefined ? undefined : findCommand(commands, words[at] ?? "");
  if (at === undefined || command === undefined) return words;
  const known = [command, ...command.commands].flatMap(({ options }) =>
    options.flatMap(({ short, long }) => [short, long]),
  );
  const flags = words.slice(0, at).filter((word) => word.startsWith("-"));
  if (!flags.every((flag) => known.includes(flag.split("=")[0]))) return words;
  return [words[at] ?? "", ...words.slice(0, at), ...words.slice(at + 1)];
}

/** Returns the kind in kubectl's `services/web`, `services.v1` or `endpointslices.discovery.k8s.io`. */
export function kindOf(word: string): string {
  return word.replace(/[/.].*/s, "");
}

/**
 * Finds the words that lead to `get` or `describe`, for example `file -i state.yaml get`. `at` is the index after them.
 */
function findGet(
  args: readonly string[],
  program: Command,
): { readonly get: Command; readonly at: number } | undefined {
  const path = [program];
  for (let at = 0; at < args.length; ) {
    const operandAt = findOperand(args, at, path);
    const command =
      operandAt === undefined ? undefined : findCommand(path.at(-1)?.commands ?? [], args[operandAt] ?? "");
    if (operandAt === undefined || command === undefined) return undefined;
    at = operandAt + 1;
    if (command.name() === "get" || command.name() === "describe") return { get: command, at };
    path.push(command);
  }
  return undefined;
}

/**
 * Returns the index of the first word, from `at`, that is neither an option of these commands nor its value. Also for
 * `findRefusedHabit`.
 */
export function findOperand(args: readonly string[], at: number, commands: readonly Command[]): number | undefined {
  const options = commands.flatMap((command) => command.options);
  for (let index = at; index < args.length; index += 1) {
    const word = args[index] ?? "";
    if (word === "--") return undefined;
    if (!word.startsWith("-") || word === "-") return index;
    const option = options.find(({ short, long }) => word === short || word === long);
    if (option !== undefined && (option.required || option.optional)) index += 1;
  }
  return undefined;
}

/** Returns the command with this name or alias. Also for `findRefusedHabit`. */
export function findCommand(commands: readonly Command[], word: string): Command | undefined {
  return commands.find((command) => command.name() === word || command.aliases().includes(word));
}

function withoutKind(word: string, kind: Command): string {
  const [prefix = "", name] = word.split(/\/(.*)/s);
  return name !== undefined && findCommand([kind], prefix) !== undefined ? name : word;
}
