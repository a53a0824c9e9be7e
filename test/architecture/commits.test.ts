import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { type Commit, findCommitProblems, logArguments, parseCommits } from "./commits.ts";

/** The rules hold for the commits after this one. */
const base = "ab2479c";

function git(...args: readonly string[]): string {
  return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}

/** Why the history cannot be checked here; undefined if it can. */
function reasonToSkip(): string | undefined {
  try {
    if (git("rev-parse", "--is-shallow-repository").trim() === "true") return "this is a shallow clone";
  } catch {
    return "this is no git repository";
  }
  try {
    git("merge-base", "--is-ancestor", base, "HEAD");
    return undefined;
  } catch {
    return `the history does not contain ${base}`;
  }
}

test(`commits after ${base} follow the rules of CONTRIBUTING.md`, ({ skip }) => {
  const reason = reasonToSkip();
  if (reason !== undefined) {
    process.stdout.write(`commit messages are not checked: ${reason}\n`);
    skip(reason);
  }
  const commits = parseCommits(git(...logArguments(base)));
  const problems = commits.flatMap((commit) =>
    findCommitProblems(commit).map((problem) => `${commit.hash} ${commit.subject}: ${problem}`),
  );
  expect(problems.join("\n")).toBe("");
});

describe("findCommitProblems", () => {
  const good: Commit = { hash: "1234567", subject: "view: keep terminating endpoints", body: "", changedLines: 3 };

  test.each<{ readonly name: string; readonly change: Partial<Commit> }>([
    { name: "a small commit without a body", change: { changedLines: 40 } },
    { name: "a large commit with a body", change: { changedLines: 5000, body: "The reason." } },
    { name: "a subject of 72 characters", change: { subject: `view: ${"x".repeat(66)}` } },
    { name: "two areas", change: { subject: "model, watcher: share the writer" } },
    { name: "a file as area", change: { subject: ".ci/run: print the versions" } },
  ])("accepts $name", ({ change }) => {
    expect(findCommitProblems({ ...good, ...change })).toEqual([]);
  });

  test.each<{ readonly name: string; readonly change: Partial<Commit>; readonly problem: string }>([
    {
      name: "a subject of 73 characters",
      change: { subject: `view: ${"x".repeat(67)}` },
      problem: "the subject has 73 characters, more than 72",
    },
    {
      name: "a subject without an area",
      change: { subject: "keep terminating endpoints" },
      problem: 'the subject has not the form "area: subject"',
    },
    {
      name: "41 lines without a body",
      change: { changedLines: 41, body: "\n" },
      problem: "41 changed lines need a body",
    },
  ])("rejects $name", ({ change, problem }) => {
    expect(findCommitProblems({ ...good, ...change })).toEqual([problem]);
  });
});

test("parseCommits reads bodies of several lines and counts the larger number of each file", () => {
  const log = "\x011a\0a: one\0Why.\n\nHow.\n\0\n3\t1\ta.ts\n2\t9\tb.ts\n-\t-\tc.binpb\n\n\x012b\0b: two\0\0\n";
  expect(parseCommits(log)).toEqual([
    { hash: "1a", subject: "a: one", body: "Why.\n\nHow.\n", changedLines: 12 },
    { hash: "2b", subject: "b: two", body: "", changedLines: 0 },
  ]);
});
