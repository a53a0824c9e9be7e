import type { SourceFile } from "./source-files.ts";

/** Text that is read as one: a comment or a paragraph with its lines joined, or a line of code. */
export interface Passage {
  /** Begins with the marker of the comment, e.g. "/**"; the markers of its further lines are left out. */
  readonly text: string;
  /** Returns the line number, from 1, of the character at an index of `text`. */
  readonly lineAt: (index: number) => number;
}

/** Markers of comment lines: the further lines of a block comment, line comments of TypeScript, and of YAML. */
const commentMarkers = [/^\*(?!\/) ?/, /^\/\/ ?/, /^# /];

/** Starts of lines that do not continue the paragraph above them: lists, tables, headings, tags and fences. */
const separateLine = /^(?:[-|#@]|\d+\. |```)/;

/** Splits a file into its passages. Pure; O(size of the file). */
export function splitPassages({ file, text }: SourceFile): Passage[] {
  const isDocument = file.endsWith(".md");
  const passages: Passage[] = [];
  let lines: { readonly text: string; readonly number: number }[] = [];
  let kind = -1;
  const finish = (): void => {
    if (lines.length > 0) passages.push(joinLines(lines));
    lines = [];
  };
  text.split("\n").forEach((line, index) => {
    const trimmed = line.trim();
    const marker = isDocument ? -1 : commentMarkers.findIndex((pattern) => pattern.test(trimmed));
    const content = marker < 0 ? trimmed : trimmed.replace(commentMarkers[marker] ?? "", "");
    const isText = isDocument ? content !== "" : marker >= 0 && content !== "";
    const continues = lines.length > 0 && isText && marker === kind && !separateLine.test(content);
    if (!continues) finish();
    lines.push({ text: continues ? content : trimmed, number: index + 1 });
    // A block comment begins with "/*" and goes on with "*".
    kind = /^\/\*/.test(trimmed) ? 0 : isText ? marker : -2;
  });
  finish();
  return passages;
}

function joinLines(lines: readonly { readonly text: string; readonly number: number }[]): Passage {
  let length = 0;
  const ends = lines.map(({ text, number }) => {
    length += text.length + 1;
    return { end: length, number };
  });
  return {
    text: lines.map(({ text }) => text).join(" "),
    lineAt: (index) => ends.find(({ end }) => index < end)?.number ?? 0,
  };
}
