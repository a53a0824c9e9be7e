import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A Markdown file of the repository. */
export interface Document {
  readonly path: string;
  readonly text: string;
}

/** Paths below `root` that end in `end`, without generated and installed files. */
export function filesUnder(root: string, end: string): readonly string[] {
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(end) && !/(^|\/)(node_modules|dist|\.git)\//.test(file))
    .map((file) => join(root, file));
}

/** All documents, sorted by path. */
export function readDocuments(): readonly Document[] {
  const top = readdirSync(".").filter((name) => name.endsWith(".md"));
  const below = ["clients", "docs", "deploy", "examples", "services", "test"].flatMap((root) =>
    filesUnder(root, ".md"),
  );
  return [...top, ...below].toSorted().map((path) => ({ path, text: readFileSync(path, "utf8") }));
}

/** The text without its code blocks, which may contain what looks like a link or a heading. */
export function withoutCodeBlocks(text: string): string {
  return text.replaceAll(/^ *```[\s\S]*?^ *```$/gm, "");
}

/** The distinct first groups of a pattern's matches, sorted. */
export function distinctMatches(text: string, pattern: RegExp): readonly string[] {
  return [...new Set([...text.matchAll(pattern)].map((match) => match[1] ?? ""))].toSorted();
}
