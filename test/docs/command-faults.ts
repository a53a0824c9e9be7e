import type { Command } from "commander";
import { makePrograms } from "./reference/command-options.ts";

const programs = makePrograms();

/** The options of all programs, with `--help`. */
export const knownOptions: ReadonlySet<string> = new Set(["--help", ...programs.flatMap(optionsBelow)]);

function optionsBelow(command: Command): readonly string[] {
  return [...command.options.map(({ long }) => long ?? ""), ...command.commands.flatMap(optionsBelow)];
}

/**
 * Returns what is wrong with a command line: an unknown command, or an option that neither the command nor a parent
 * has. What is not a program of ours is right. A word in capitals or with an ellipsis stands for anything; the rest is
 * skipped.
 */
export function commandFaults(words: readonly string[]): readonly string[] {
  const [name = "", ...rest] = words;
  const program = programs.find((known) => known.name() === name);
  if (program === undefined) return [];
  const path = [program];
  for (let index = 0; index < rest.length; index += 1) {
    const word = rest[index] ?? "";
    if (/[…*]|^(SOURCE|BACKEND|NAME|to-[A-Z]+)$/.test(word)) return [];
    if (word.startsWith("-") && word !== "-") {
      const [flag = ""] = word.split("=");
      const option = path.flatMap(({ options }) => options).find(({ long, short }) => flag === long || flag === short);
      if (option === undefined && flag !== "--help") return [`${words.join(" ")}: unknown option ${flag}`];
      if (option?.required === true && !word.includes("=")) index += 1;
      continue;
    }
    const parent = path.at(-1) ?? program;
    const child = parent.commands.find((known) => known.name() === word || known.aliases().includes(word));
    if (child !== undefined) path.push(child);
    else if (parent.commands.length > 0) return [`${words.join(" ")}: unknown command ${word}`];
  }
  return [];
}
