/** Returns the lines of one generated table; `argument` is the text after the colon. */
export type BlockWriter = (argument: string) => readonly string[];

const block = /^<!-- (\w+)(?:: (.+?))? -->\n(?:\|.*\n)*/gm;

/**
 * Replaces the generated tables of a document by those that their writers return.
 *
 * *Shape:* `<!-- options: kpng kube -->`, and the table in the next lines. The first word names the writer.
 *
 * Errors: a table whose writer is unknown.
 */
export function fillBlocks(document: string, writers: Readonly<Record<string, BlockWriter>>): string {
  return document.replaceAll(block, (whole: string, name: string, argument = "") => {
    const write = writers[name];
    if (write === undefined) throw new Error(`no writer for the generated table "${name}"`);
    const [start = ""] = whole.split("\n", 1);
    return `${[start, ...write(argument)].join("\n")}\n`;
  });
}

/** Returns a Markdown table; cells may contain "|". */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map(escapeCell).join(" | ")} |`.replaceAll("|  |", "| |");
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)];
}

function escapeCell(text: string): string {
  return text.replaceAll("|", "\\|");
}
