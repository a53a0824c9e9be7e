import type { Command } from "commander";

/**
 * Brings a command line in kubectl's word order into commander's: `get -n shop svc/web` becomes `get svc -n shop web`.
 * In kubectl, flags may come before the kind, and a kind and a name may be one word. Everything else stays as it is.
 *
 * `args` are the words after the program. `arrangeWords` calls the function before commander parses the words. Pure.
 *
 * Separate from the command tree, because commander chooses a subcommand before it knows that command's options.
 */
export function kubectlWords(args: readonly string[], program: Command): readonly string[] {
  const start = findGet(args, program);
  if (start === undefined) return args;
  const { get, at } = start;
  const kinds = get.commands;
  const kindAt = findOperand(args, at, [get, ...kinds]);
  if (kindAt === undefined) return args;
  const word = args[kindAt] ?? "";
  const [prefix = "", name] = word.split(/\/(.*)/s);
  const kind = findCommand(kinds, word) ?? findCommand(kinds, prefix);
  if (kind === undefined) return args;
  const rest = args.slice(at).toSpliced(kindAt - at, 1, ...(name === undefined || name === "" ? [] : [name]));
  // Further words such as svc/db, but not shop/db after a kind of its own: that is a namespace.
  const names = word === prefix ? rest : rest.map((one) => withoutKind(one, kind));
  return [...args.slice(0, at), kind.name(), ...names];
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
