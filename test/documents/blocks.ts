import { readdirSync, readFileSync } from "node:fs";

/** A block of shell commands in a document. */
export interface Block {
  /** *Shape:* `docs/inspect.md:62`, the line of the fence. */
  readonly place: string;
  readonly path: string;
  /** Each command with its continuation lines, as typed. Loops and pipelines over several lines are one command. */
  readonly commands: readonly string[];
}

/**
 * Returns the blocks of commands in the README, the documents and the guides, for `run-blocks.nightly.test.ts`, which runs
 * them, and `elsewhere.nightly.test.ts`. Decisions are not among them: they show what was true when they were made.
 */
export function readBlocks(): readonly Block[] {
  const folders = ["docs", "docs/guides", "docs/reference"];
  const paths = folders.flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith(".md"))
      .map((name) => `${folder}/${name}`),
  );
  return ["README.md", ...paths].flatMap(blocksOf);
}

function blocksOf(path: string): readonly Block[] {
  const text = readFileSync(path, "utf8");
  const fence = /^( *)```(sh|console)\n([\s\S]*?)^ *```$/gm;
  return [...text.matchAll(fence)].map(({ 1: indent = "", 2: language = "", 3: body = "", index }) => {
    const line = text.slice(0, index).split("\n").length;
    const lines = body.split("\n").map((one) => one.slice(indent.length));
    const typed = language === "console" ? typedLines(lines) : lines;
    return { place: `${path}:${line}`, path, commands: commandsOf(typed) };
  });
}

/** Lines that a person types: those after a prompt, and their continuations. The others are what is printed. */
function typedLines(lines: readonly string[]): readonly string[] {
  let continues = false;
  return lines.flatMap((line) => {
    const isTyped = continues || line.startsWith("$ ");
    continues = isTyped && line.endsWith("\\");
    return isTyped ? [line.replace(/^\$ /, "")] : [];
  });
}

/** Joins lines until a shell has a whole command: after a backslash, a pipe, or inside a loop. */
function commandsOf(lines: readonly string[]): readonly string[] {
  const commands: string[] = [];
  let pending: string[] = [];
  for (const line of lines) {
    if (pending.length === 0 && (line.trim() === "" || line.startsWith("#"))) continue;
    pending.push(line);
    const [begin = ""] = pending;
    const isLoop = /^\s*for /.test(begin) && !/^\s*done\b/.test(line);
    const isGroup = begin.startsWith("{ ") && !pending.some((one) => one.includes("}"));
    if (/(\\|\||&&)$/.test(line.trimEnd()) || isLoop || isGroup) continue;
    commands.push(pending.join("\n"));
    pending = [];
  }
  return commands;
}
