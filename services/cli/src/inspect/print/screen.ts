import { terminalText } from "./terminal-text.ts";

/**
 * Prints one update of `kpng top`: on a terminal it replaces the previous one, elsewhere it is
 * appended after an empty line. `isFirst` is true for the first update. Separate from `output.ts`, which prints lists
 * that stay.
 */
export function printScreen(text: string, isFirst: boolean): void {
  const { isTTY = false, rows: height } = process.stdout;
  const safe = terminalText(text);
  // Overwrites the screen in place, without clearing it first: that would flicker and fill the scrollback.
  if (isTTY) process.stdout.write(`\u001b[H${toScreen(safe, height)}\u001b[J`);
  else process.stdout.write(`${isFirst ? "" : "\n"}${safe}`);
}

/** Returns the lines that fit on the terminal, each with a code that clears the rest of the line. */
function toScreen(text: string, height: number | undefined): string {
  const lines = text.trimEnd().split("\n");
  return lines
    .slice(0, height ? Math.max(1, height - 1) : lines.length)
    .map((line) => `${line}\u001b[K\n`)
    .join("");
}
