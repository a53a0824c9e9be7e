import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Document, distinctMatches, readDocuments, withoutCodeBlocks } from "./documents.ts";

const documents = readDocuments();

/** The targets of links to other places in the repository, with their anchors. */
function localLinks({ text }: Document): readonly string[] {
  return distinctMatches(withoutCodeBlocks(text), /\]\(([^)\s]+)\)/g).filter((target) => !/^[a-z]+:/.test(target));
}

/** The anchors that GitHub makes of a document's headings. */
function anchorsIn(text: string): ReadonlySet<string> {
  const seen = new Map<string, number>();
  const headings = [...withoutCodeBlocks(text).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => {
    const anchor = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-");
    const count = seen.get(anchor) ?? 0;
    seen.set(anchor, count + 1);
    return count === 0 ? anchor : `${anchor}-${count}`;
  });
  return new Set(headings);
}

describe("a relative link leads to a file, and to a heading if it names one", () => {
  test.each(documents)("$path", (document) => {
    const broken = localLinks(document).filter((link) => {
      const [file = "", anchor] = link.split("#");
      const path = file === "" ? document.path : join(dirname(document.path), file);
      if (!existsSync(path)) return true;
      return anchor !== undefined && path.endsWith(".md") && !anchorsIn(readFileSync(path, "utf8")).has(anchor);
    });
    expect(broken).toEqual([]);
  });
});

test("docs/README.md links to every document in docs", () => {
  const index = documents.find(({ path }) => path === "docs/README.md");
  const linked = index === undefined ? [] : localLinks(index).map((link) => join("docs", link));
  const others = documents.map(({ path }) => path).filter((path) => /^docs\/(?!README|decisions)/.test(path));
  expect(others.filter((path) => !linked.includes(path))).toEqual([]);
});

test("each decision has a number of its own", () => {
  const names = readdirSync("docs/decisions");
  expect(names.filter((name) => !/^\d{4}-[a-z0-9-]+\.md$/.test(name))).toEqual([]);
  const numbers = names.map((name) => name.slice(0, 4));
  expect(numbers).toEqual([...new Set(numbers)]);
});
