export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Prints a table in Markdown, with an empty line after it. */
export function sayTable(columns: readonly string[], rows: readonly (readonly string[])[]): void {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  say([line(columns), line(columns.map(() => "--:")), ...rows.map(line), ""].join("\n"));
}
