import type { Finding } from "./finding.ts";
import type { SourceFile } from "./source-files.ts";

/**
 * Checks the status line of every decision record.
 *
 * The line follows the title: "Status: accepted" or "Status: superseded by NNNN", where NNNN is the number of another
 * record, with a link to it if the author likes.
 */
export function findStatusProblems(records: readonly SourceFile[]): Finding[] {
  const numberOf = ({ file }: SourceFile): string => /(\d{4})-[^/]*$/.exec(file)?.[1] ?? "";
  const numbers = new Set(records.map(numberOf));
  return records.flatMap((record) => {
    const match = /^# [^\n]+\n\nStatus: (?:accepted|superseded by \[?(\d{4})(?:\]\([^)\n]+\))?)\n\n/.exec(record.text);
    if (match === null) {
      return [{ file: record.file, line: 3, problem: 'wants "Status: accepted" or "Status: superseded by NNNN"' }];
    }
    const successor = match[1];
    if (successor === undefined || (numbers.has(successor) && successor !== numberOf(record))) return [];
    return [{ file: record.file, line: 3, problem: `there is no other record ${successor}` }];
  });
}
