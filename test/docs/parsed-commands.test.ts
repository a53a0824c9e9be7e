import { type Command, CommanderError } from "commander";
import { expect, test } from "vitest";
import { codeSpans } from "./code-spans.ts";
import { readDocuments } from "./documents.ts";
import { makePrograms } from "./reference/command-options.ts";

// Every command of ours in a block of a document is parsed by the program's own parser: its values and arguments too.
// `names.test.ts` looks at the names of commands and options in spans, which are often shortened.

const documents = readDocuments().filter(({ path }) => !path.startsWith("docs/decisions/") && path !== "CHANGELOG.md");

/** Stands for a value of the user's: `SOURCE`, `…`, `[…]`. */
const placeholder = /…|\bSOURCE\b|\bBACKEND\b|\bNAME\b|\bCOMMAND\b/;

/** Splits a line into words as a shell does; variables become a word. Returns the simple commands of the line. */
function shellCommands(line: string): readonly (readonly string[])[] {
  const commands: string[][] = [[]];
  const token =
    /\s*(?:(#.*$)|(&&|\|\||[|;&()])|(\d?[<>]+&?\s*\S*)|((?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s|;&()<>"'\\])+))/gy;
  for (const [, comment, operator, redirection, word] of line.matchAll(token)) {
    if (comment !== undefined) break;
    if (operator !== undefined) commands.push([]);
    else if (redirection === undefined && word !== undefined) commands.at(-1)?.push(unquote(word));
  }
  return commands;
}

function unquote(word: string): string {
  const text = word.replaceAll(
    /'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)/g,
    (_all, single, double, one) => single ?? double ?? one,
  );
  return text.replaceAll(/\$\{?\w+\}?/g, "value");
}

/** Removes the words before the program: assignments, `npx --no-install`, `sudo`, `kubectl exec POD --`. */
function withoutPrefix(words: readonly string[]): readonly string[] {
  const own = words.includes("kubectl") ? words.slice(words.indexOf("--") + 1) : words;
  return own.slice(own.findIndex((word) => !/^([A-Z_]+=.*|npx|--no-install|sudo|exec|\$)$/.test(word)));
}

/** Parses the words without running anything. Returns the parser's message; "" if they are valid. */
async function parserMessage([name = "", ...args]: readonly string[]): Promise<string> {
  const program = makePrograms().find((known) => known.name() === name);
  if (program === undefined) return "";
  let message = "";
  const prepare = (command: Command): void => {
    command.exitOverride().configureOutput({
      writeErr: (text) => (message += text),
      writeOut: () => undefined,
    });
    if (command.commands.length === 0) command.action(() => undefined);
    for (const child of command.commands) prepare(child);
  };
  prepare(program);
  try {
    await program.parseAsync([...args], { from: "user" });
    return "";
  } catch (error) {
    // Any other error is that of a file which a --config names, and which is not here.
    return error instanceof CommanderError && error.exitCode !== 0 ? message || error.message : "";
  }
}

test.each(documents)("the commands of kpng in the blocks of $path are valid", async (document) => {
  const lines = codeSpans(document).filter(({ language }) => language === "sh" || language === "console");
  const commands = lines
    .filter(({ language, text }) => language === "sh" || text.startsWith("$ "))
    .flatMap(({ text }) => shellCommands(text.replace(/^\$ /, "")))
    .map(withoutPrefix)
    .filter(([name = ""]) => name === "kpng" || name.startsWith("kpng-"));
  const faults: string[] = [];
  for (const words of commands) {
    if (words.some((word) => placeholder.test(word))) continue;
    const message = await parserMessage(words);
    if (message !== "") faults.push(`${words.join(" ")}: ${message.trim()}`);
  }
  expect(faults).toEqual([]);
});
