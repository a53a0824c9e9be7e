import { Argument, Command } from "commander";

/**
 * `kpng completion bash|zsh|fish`: prints a script with which a shell completes commands and options of `kpng`. The
 * script calls the hidden command `kpng __complete WORDS`, so it stays valid when `kpng` gets new commands.
 */
export function makeCompletion(): Command {
  return new Command("completion")
    .addArgument(new Argument("<shell>", "bash, zsh or fish").choices(Object.keys(scripts)))
    .addHelpText(
      "after",
      `
Examples:
  source <(kpng completion bash)
  kpng completion zsh > "\${fpath[1]}/_kpng"
  kpng completion fish > ~/.config/fish/completions/kpng.fish
`,
    )
    .action((shell: keyof typeof scripts) => void process.stdout.write(scripts[shell]));
}

/** `kpng __complete WORDS`: prints the words that may replace the last one. */
export function makeAnswer(_signal: AbortSignal, _backends: unknown, program: Command): Command {
  return new Command("__complete")
    .argument("[words...]")
    .allowUnknownOption()
    .helpOption(false)
    .action((words: readonly string[]) => {
      for (const word of complete(words, program)) process.stdout.write(`${word}\n`);
    });
}

/**
 * Returns the words that may replace the last word ("" for a new word): subcommands, or options if the last word begins
 * with "-". Returns no words after an option that takes a value; there the shell completes file names. Pure.
 */
export function complete(words: readonly string[], program: Command): readonly string[] {
  const last = words.at(-1) ?? "";
  const path = [program];
  let isValue = false;
  for (const word of words.slice(0, -1)) {
    const command = path.at(-1) ?? program;
    const option = path.flatMap(({ options }) => options).find(({ short, long }) => word === short || word === long);
    const child = command.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (!isValue && option === undefined && child !== undefined) path.push(child);
    isValue = !isValue && option !== undefined && (option.required || option.optional);
  }
  if (isValue) return [];
  const command = path.at(-1) ?? program;
  const candidates = last.startsWith("-")
    ? path.flatMap(({ options }) => options.filter(({ hidden }) => !hidden).map(({ long, flags }) => long ?? flags))
    : command
        .createHelp()
        .visibleCommands(command)
        .map((one) => one.name());
  return [...new Set(candidates)].filter((word) => word.startsWith(last)).sort();
}

const scripts = {
  bash: `_kpng() {
  local IFS=$'\\n'
  COMPREPLY=($(kpng __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _kpng kpng
`,
  zsh: `#compdef kpng
_kpng() {
  local -a found
  found=("\${(@f)$(kpng __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- $found; else _files; fi
}
# Loaded from fpath, the file is the function itself and its first call must already complete.
if [[ "$funcstack[1]" = _kpng ]]; then _kpng; else compdef _kpng kpng; fi
`,
  fish: `function __kpng_complete
  set -l found (kpng __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
  if set -q found[1]; string join \\n -- $found; else; __fish_complete_path (commandline -ct); end
end
complete -c kpng -f -a '(__kpng_complete)'
`,
} as const;
