import { type Command, CommanderError } from "commander";
import { findCommand, findOperand, kindOf, kubectlWords } from "./kubectl-words.ts";
import { type RefusedHabit, refusedHabits } from "./refused-habits.ts";

/**
 * Prepares the words of a command line for commander. Refuses a habit of kubectl, istioctl, hubble or cilium that
 * `kpng` does not have, with the reason and what does the job here. Otherwise, returns the words in the order of
 * commander (`kubectlWords`).
 *
 * `startKpng` passes the function to `runProcess`. Separate from commander's own errors, whose suggestions are words of
 * similar spelling: "release" for `kpng delete`.
 *
 * Errors: CommanderError with exit code 2, like other invalid command lines; the text is already on standard error.
 */
export function arrangeWords(args: readonly string[], program: Command): readonly string[] {
  const found = findRefusedHabit(args, program);
  if (found === undefined) return kubectlWords(args, program);
  const message = `kpng has no "${found.typed}": ${found.habit.reason}`;
  process.stderr.write(`Error: ${message}\nHint: ${found.habit.instead.replaceAll("`", "")}\n`);
  throw new CommanderError(2, "kpng.refusedHabit", message);
}

/** A refused habit in a command line. */
interface FoundHabit {
  readonly habit: RefusedHabit;
  /** The member of `habit.words` that was found: "get KIND,KIND". */
  readonly word: string;
  /** The same as it was typed: "get svc,ep". */
  readonly typed: string;
}

/**
 * Returns the refused habit in a command line; undefined if there is none. A word that is a command, an argument or the
 * value of an option is no habit. After the name of another tool, its own habits are found: `hubble observe`. Pure.
 */
export function findRefusedHabit(args: readonly string[], program: Command): FoundHabit | undefined {
  const [tool = "", ...afterTool] = args;
  const ofTool = refusedHabits.some((habit) => habit.tool === tool) && findRefusedHabit(afterTool, program);
  if (ofTool) return ofTool;
  const path = [program];
  const phrases: Omit<FoundHabit, "habit">[] = [];
  for (let at = 0; ; ) {
    const commands = path.at(-1)?.commands ?? [];
    // Options may come before the command that they belong to: `get -n shop pods`.
    const operandAt = commands.length === 0 ? undefined : findOperand(args, at, [...path, ...commands]);
    if (operandAt === undefined) {
      const last = path.at(-1) ?? program;
      const hasWord = commands.length === 0 && last.registeredArguments.length === 0;
      const extraAt = hasWord ? findOperand(args, at, path) : undefined;
      if (extraAt !== undefined)
        phrases.push({ word: `${last.name()} WORD`, typed: `${last.name()} ${args[extraAt]}` });
      break;
    }
    const word = args[operandAt] ?? "";
    const command = findCommand(commands, word);
    if (command === undefined) {
      // Programs on the PATH have words and options of their own.
      if (findCommand(commands, "*") !== undefined) return undefined;
      const kind = kindOf(word);
      const names = args.slice(operandAt + 1).map((arg) => /^([a-z]+)\/./.exec(arg)?.[1]);
      const isMixed = word.includes("/") && names.some((name) => name !== undefined && isOther(commands, kind, name));
      const group = path.length === 1 ? "" : `${path.at(-1)?.name()} `;
      if (word.includes(",") || isMixed)
        phrases.push({ word: `${group}KIND,KIND`, typed: group + args.slice(operandAt).join(" ") });
      else phrases.push({ word: group + kind, typed: group + kind });
      break;
    }
    path.push(command);
    at = operandAt + 1;
  }
  phrases.push(...optionPhrases(args, path).map((word) => ({ word, typed: word })));
  for (const phrase of phrases) {
    const habit = refusedHabits.find(({ words }) => words.includes(phrase.word));
    if (habit !== undefined) return { habit, ...phrase };
  }
  return undefined;
}

/** True if two words name different kinds. */
function isOther(kinds: readonly Command[], one: string, other: string): boolean {
  const [first, second] = [findCommand(kinds, one), findCommand(kinds, other)];
  return first !== undefined && second !== undefined && first !== second;
}

/** Returns unknown options, and known ones with the beginning of their values: `-o go-template`. */
function optionPhrases(args: readonly string[], path: readonly Command[]): readonly string[] {
  const options = path.flatMap((command) => command.options);
  const end = args.indexOf("--");
  return args.slice(0, end < 0 ? args.length : end).flatMap((arg, index) => {
    if (!arg.startsWith("-")) return [];
    // A value may follow a short option directly: -ojson.
    const [, short, rest = ""] = /^(-[A-Za-z])=?(.+)$/s.exec(arg) ?? [];
    const isAttached = short !== undefined && options.some((one) => one.required && one.short === short);
    const [flag = "", value = args[index + 1] ?? ""] = isAttached ? [short, rest] : arg.split(/=(.*)/s);
    const option = options.find(({ short, long }) => flag === short || flag === long);
    return option === undefined ? [flag] : [`${option.short ?? flag} ${value.split("=")[0]}`];
  });
}
