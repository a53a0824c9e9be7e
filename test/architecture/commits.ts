/** The part of a commit that the rules apply to. */
export interface Commit {
  readonly hash: string;
  readonly subject: string;
  readonly body: string;
  /** The larger of added and deleted lines of each file, summed. */
  readonly changedLines: number;
}

const maxSubjectLength = 72;

/** A commit with more changed lines than this explains itself in a body. */
const maxLinesWithoutBody = 40;

/** Returns what is wrong with a commit's message; empty if nothing. */
export function findCommitProblems({ subject, body, changedLines }: Commit): string[] {
  const problems: string[] = [];
  if (subject.length > maxSubjectLength) {
    problems.push(`the subject has ${subject.length} characters, more than ${maxSubjectLength}`);
  }
  if (!/^[\w./-][^:]*: \S/.test(subject)) problems.push('the subject has not the form "area: subject"');
  if (changedLines > maxLinesWithoutBody && body.trim() === "") {
    problems.push(`${changedLines} changed lines need a body`);
  }
  return problems;
}

/** Arguments of git that print the commits after `base`, without merges, in the format of {@link parseCommits}. */
export function logArguments(base: string): string[] {
  return ["log", "--no-merges", "--numstat", "--find-renames", "--format=%x01%h%x00%s%x00%b%x00", `${base}..HEAD`];
}

/** Reads what git prints for {@link logArguments}. Binary files count as no lines. */
export function parseCommits(log: string): Commit[] {
  return log
    .split("\x01")
    .slice(1)
    .map((record) => {
      const [hash = "", subject = "", body = "", numstat = ""] = record.split("\0");
      const counts = [...numstat.matchAll(/^(\d+)\t(\d+)\t/gm)];
      const changedLines = counts.reduce(
        (sum, [, added, deleted]) => sum + Math.max(Number(added), Number(deleted)),
        0,
      );
      return { hash, subject, body, changedLines };
    });
}
