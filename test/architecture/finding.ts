/** A place in a file that breaks a rule of the project. */
export interface Finding {
  /** Path from the root of the repository. */
  readonly file: string;
  /** Line number, from 1; absent if the rule concerns the whole file. */
  readonly line?: number | undefined;
  readonly problem: string;
}

/** Findings in the format of a compiler, "file:line: problem", sorted, one a line; "" for none. */
export function formatFindings(findings: readonly Finding[]): string {
  const lines = findings.map(({ file, line, problem }) => ({ file, line: line ?? 0, problem }));
  lines.sort((a, b) => (a.file === b.file ? a.line - b.line : a.file < b.file ? -1 : 1));
  return lines.map(({ file, line, problem }) => `${file}:${line === 0 ? "" : `${line}:`} ${problem}`).join("\n");
}
