import type { Finding } from "./finding.ts";
import type { SourceFile } from "./source-files.ts";

/** The formatter breaks code at this width, and leaves comments as they are. */
export const maxWidth = 120;

/** Returns the lines with a comment that are too long, links excepted. Documents are not checked. */
export function findWideComments({ file, text }: SourceFile): Finding[] {
  if (file.endsWith(".md")) return [];
  return text.split("\n").flatMap((line, index) => {
    const isComment = /^\s*(?:\/\/|\/?\*|# )|\s\/\/ /.test(line) && !/https?:\S+$/.test(line);
    if (!isComment || line.length <= maxWidth) return [];
    return [{ file, line: index + 1, problem: `the comment has ${line.length} columns, more than ${maxWidth}` }];
  });
}
