import { globSync, readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { codeSpans } from "./code-spans.ts";
import { commandFaults, knownOptions } from "./command-faults.ts";
import { type Document, distinctMatches, filesUnder, readDocuments } from "./documents.ts";

// Decisions are history: what they name may be gone.
const documents = readDocuments().filter(({ path }) => !path.startsWith("docs/decisions/") && path !== "CHANGELOG.md");

const roots = ["clients", "deploy", "docs", "examples", "proto", "services", "test"];
const files = [...readdirSync("."), ...roots.flatMap((root) => filesUnder(root, ""))];
const code = [...files.filter((file) => /\.(ts|mjs|yaml|proto|go|py)$/.test(file)), ".ci/run"]
  .map((file) => readFileSync(file, "utf8"))
  .join("\n");

/** *Shape:* `localv1.Sets/Watch`. */
const methods = new Set(filesUnder("proto", ".proto").flatMap(methodsOf));

/** Options of other programs, written without the program. */
const foreignOptions = new Set(["--cpu-prof", "--inspect"]);

function spansOf(document: Document): readonly string[] {
  return codeSpans(document)
    .filter(({ language }) => language === "")
    .map(({ text }) => text);
}

test.each(documents)("what $path names exists", (document) => {
  const unknown = {
    commands: spansOf(document).filter(isNoMessage).flatMap(simpleCommands).flatMap(commandFaults),
    messages: unknownMessages(document),
    options: unknownOptions(spansOf(document)),
    names: unknownNames(spansOf(document)),
    codes: distinctMatches(document.text, /\[([A-Z]+(?:_[A-Z]+)+)\]/g).filter((code) => !isKnown(code)),
    columns: unknownColumns(document),
    methods: distinctMatches(document.text, /\b([a-z][\w.]*\.[A-Z]\w+\/[A-Z]\w+)/g).filter(
      (name) => !methods.has(name),
    ),
    files: unknownFiles(spansOf(document)),
  };
  expect(Object.entries(unknown).filter(([, names]) => names.length > 0)).toEqual([]);
});

/** `kpng stops` is a line of the log. */
function isNoMessage(span: string): boolean {
  return !code.includes(`"${span}"`);
}

/**
 * Returns the words of each command in a span: without assignments. `parsed-commands.test.ts` parses the commands in
 * blocks.
 */
function simpleCommands(span: string): readonly (readonly string[])[] {
  return span
    .split(/&&|\|\||[|;]/)
    .map((command) => command.trim().split(/\s+/))
    .map((words) => words.slice(words.findIndex((word) => !/^([A-Z_]+=.*|npx|sudo)$/.test(word))));
}

/** Messages after "log line", which must be in the code; the last word may be an expression there. */
function unknownMessages({ text }: Document): readonly string[] {
  const messages = [...text.matchAll(/log lines?((?:\s`[^`]+`(?:,|\sor|\sand)?)+)/g)].flatMap(([, list = ""]) =>
    [...list.matchAll(/`([^`]+)`/g)].map(([, message = ""]) => message),
  );
  return messages.filter((message) => !code.includes(message) && !code.includes(message.replace(/\w+$/, "${")));
}

/** Titles of columns in the output of `kpng get` and similar commands. */
function unknownColumns(document: Document): readonly string[] {
  const lines = codeSpans(document).filter(({ language }) => language === "console");
  const titles = lines.flatMap(({ text }) =>
    /^ *[A-Z-]+(?: {2,}[A-Z0-9-]+)+$/.test(text) ? text.trim().split(/ +/) : [],
  );
  return titles.filter((title) => !code.includes(`"${title}"`));
}

/** A span that ends in a dash stands for several options: `--conntrack-…`. */
function unknownOptions(spans: readonly string[]): readonly string[] {
  const options = spans.flatMap((span) => /^--[a-z][a-z0-9-]*/.exec(span)?.[0] ?? []);
  return options.filter((option) => {
    if (knownOptions.has(option) || foreignOptions.has(option) || code.includes(option)) return false;
    return !option.endsWith("-") || ![...knownOptions].some((known) => known.startsWith(option));
  });
}

function methodsOf(path: string): readonly string[] {
  const text = readFileSync(path, "utf8");
  const [, name = ""] = /^package (.+);$/m.exec(text) ?? [];
  return [...text.matchAll(/^service (\w+) \{([\s\S]*?)^\}/gm)].flatMap(([, service = "", body = ""]) =>
    distinctMatches(body, /^ *rpc (\w+)/gm).map((method) => `${name}.${service}/${method}`),
  );
}

/** Metrics, error codes and environment variables. */
function unknownNames(spans: readonly string[]): readonly string[] {
  const names = spans.flatMap((span) => [
    ...distinctMatches(span, /\b((?:kpng|kubeproxy)_[a-z_]*[a-z])(?![…*\w])/g),
    ...distinctMatches(span, /\b([A-Z]{2,}(?:_[A-Z0-9]+)+)\b/g),
  ]);
  return [...new Set(names)].filter((name) => !isKnown(name));
}

function unknownFiles(spans: readonly string[]): readonly string[] {
  const paths = spans.filter((span) => /^[\w.@*{},/-]+$/.test(span) && isPath(span) && !/NAME|NNNN/.test(span));
  return paths.filter((path) => !exists(path));
}

/** Metrics with parts of their names put together are in the reference. */
const metrics = new Set(distinctMatches(readFileSync("docs/reference/metrics.md", "utf8"), /^\| `(\w+)`/gm));
const variables = new Set(
  [...knownOptions].map((option) => `KPNG_${option.slice(2).replaceAll("-", "_").toUpperCase()}`),
);

function isKnown(name: string): boolean {
  const base = name.replace(/_(bucket|sum|count)$/, "");
  return metrics.has(base) || variables.has(name) || new RegExp(`\\b${name}\\b`).test(code);
}

function isPath(span: string): boolean {
  return roots.some((root) => span.startsWith(`${root}/`)) || /\w\.(ts|mjs|proto)$/.test(span);
}

/** From the top of the repository, or the end of a path: `commit/restore-rules.ts`. */
function exists(path: string): boolean {
  if (/[*{]/.test(path)) return globSync([path, `{${roots.join()}}/**/${path}`]).length > 0;
  const bare = path.replace(/\/$/, "");
  return files.some((file) => file === bare || file.endsWith(`/${bare}`) || file.startsWith(`${bare}/`));
}
