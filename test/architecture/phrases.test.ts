import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { formatFindings } from "./finding.ts";
import { findPhrases } from "./phrases.ts";
import { readProse } from "./prose.ts";
import { foldersNotRewritten } from "./unconverted.ts";

describe("phrases that readers did not understand do not return", () => {
  const countsByFolder = new Map<string, number>();
  const findings = readProse().flatMap(findPhrases);
  for (const { file } of findings) countsByFolder.set(dirname(file), (countsByFolder.get(dirname(file)) ?? 0) + 1);

  test("no file contains one", () => {
    expect(formatFindings(findings.filter(({ file }) => !foldersNotRewritten.includes(dirname(file))))).toBe("");
  });

  test("a folder without any is not listed as not rewritten", () => {
    expect(foldersNotRewritten.filter((folder) => !countsByFolder.has(folder))).toEqual([]);
  });

  test("every listed folder shows how many are left", () => {
    const rows = foldersNotRewritten.map((folder) =>
      `${countsByFolder.get(folder) ?? 0}`.padStart(5).concat(` ${folder}`),
    );
    if (rows.length > 0) process.stdout.write(`phrases to rewrite, by folder:\n${rows.join("\n")}\n`);
    expect(foldersNotRewritten).toEqual([...new Set(foldersNotRewritten)].sort());
  });
});

describe("findPhrases", () => {
  test.each([
    { text: "/** Who asks gets an answer. */", found: "/** Who" },
    { text: "/** Sent to who asks. */", found: "to who" },
    { text: 'test("who waits is called", () => {});', found: '"who' },
    { text: "// It waits. Who waits longer is refused.", found: ". Who" },
    { text: "/** Those of this process. */", found: "/** Those" },
    { text: "/** Of the endpoint. */", found: "/** Of the" },
    { text: "/** What a node has to choose from. */", found: "/** What" },
    { text: "// It serves whoever connects.", found: "whoever" },
    { text: "// Nobody listens.", found: "Nobody" },
    { text: "// A list mends it.", found: "mends" },
    { text: "// It is made anew.", found: "anew" },
    { text: "// The rules look otherwise than ours.", found: "otherwise than" },
    { text: "// The client may come again.", found: "come again" },
    { text: "// Compared with what stands.", found: "what stands" },
    { text: 'log.info("field not heeded");', found: "heeded" },
    { text: 'throw new Error("this is no address of IPv4");', found: "is no address of" },
    { text: "// Unless the options are others.", found: "are others" },
    { text: 'throw new Error("nothing is called that");', found: "nothing is called" },
    { text: "// A value that cannot be.", found: "that cannot be" },
    { text: "// It waits for ever.", found: "for ever" },
    { text: "// The newest one is to be had at once.", found: "is to be had" },
    { text: "// It sends headers, no end of them.", found: "no end of" },
    { text: "// The watcher sees to it.", found: "sees to it" },
    { text: "// It is dropped without a word.", found: "without a word" },
  ])("reports $found", ({ text, found }) => {
    const problems = findPhrases({ file: "a.ts", text }).map(({ problem }) => problem);
    expect(problems).toEqual([expect.stringContaining(`"${found}"`)]);
  });

  test.each([
    "// People who read the log see it.",
    "// Clients, who reconnect, are served.",
    "**Question.** What is sent? Who paces it, and how?",
    "/** Whether a value is set. */",
    "spawn('setpriv', ['--reuid', 'nobody']);",
    "// A prefix that stands for all addresses.",
    "// It cannot be read, and a value that cannot be read is refused.",
    "// It recommends and amends.",
    "// There is no endpoint.",
  ])("accepts %s", (text) => {
    expect(findPhrases({ file: "a.ts", text })).toEqual([]);
  });

  test("finds a phrase that goes on in the next line", () => {
    const text = "/**\n * Compared with what\n * stands in the kernel.\n */\n";
    expect(findPhrases({ file: "a.ts", text })).toMatchObject([{ file: "a.ts", line: 2 }]);
  });
});
