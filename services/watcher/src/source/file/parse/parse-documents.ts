import { lineInJson } from "./line-in-json.ts";
import { parseAnyYaml } from "./parse-any-yaml.ts";
import type { ParsedDocument, ParsedDocuments, TextProblem } from "./parsed-document.ts";
import { lineInPlainYaml, parsePlainYaml } from "./plain-yaml.ts";

/**
 * Parses the text of a file: JSON, or any number of YAML documents.
 *
 * Duplicate keys are a problem in YAML; in JSON the last one wins, as in JSON.parse. Values may share parts (aliases).
 *
 * Pure, never throws. *Cost:* JSON 0.3 s for 40 MB; YAML as written by programs 0.6 s for 20 MB; other YAML 0.5 s and
 * 100 MB of memory per MB, and therefore limited to 8 MiB per document.
 *
 * `readTexts` calls it for each input file of `kpng file`, and then `readDocument` for the values. Separate from both,
 * because it knows nothing about Kubernetes. It only chooses the parser: JSON.parse, `parsePlainYaml` or
 * `parseAnyYaml`.
 */
export function parseDocuments(text: string): ParsedDocuments {
  const nul = text.indexOf("\0");
  if (nul !== -1) {
    const line = text.slice(0, nul).split("\n").length;
    return { kind: "bad", problems: [{ line, problem: "NUL character: not a text file" }] };
  }
  const start = /[^\s\ufeff]/.exec(text)?.[0];
  return start === "{" || start === "[" ? parseJson(text) : parseYaml(text);
}

/** Longest text, in characters, that is parsed as YAML after JSON.parse rejected it. */
const maxFlowYamlLength = 1_048_576;

function parseJson(text: string): ParsedDocuments {
  const json = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  try {
    const value: unknown = JSON.parse(json);
    return {
      kind: "ok",
      documents: [{ value, length: json.length, locate: (path) => ({ line: lineInJson(json, path) }) }],
    };
  } catch (error) {
    // A YAML document may start with a bracket, too.
    const problem = error instanceof Error ? error.message : String(error);
    return text.length <= maxFlowYamlLength ? parseYaml(text) : { kind: "bad", problems: [{ problem }] };
  }
}

function parseYaml(rawText: string): ParsedDocuments {
  const withoutMark = rawText.charCodeAt(0) === 0xfeff ? rawText.slice(1) : rawText;
  const text = withoutMark.includes("\r") ? withoutMark.replace(/\r\n?/g, "\n") : withoutMark;
  // With directives and explicit document ends, splitting at `---` is not correct, so package yaml parses the whole
  // text.
  if (/^(?:%|\.\.\.)/m.test(text)) return parseAnyYaml(text, 1, 1);
  const documents: ParsedDocument[] = [];
  const problems: TextProblem[] = [];
  for (const part of splitDocuments(text)) {
    const plain = parsePlainYaml(part.text);
    if (plain.kind === "plain") {
      documents.push(plainDocument(plain.value, part));
      continue;
    }
    const parsed = parseAnyYaml(part.text, part.firstLine, plain.line);
    if (parsed.kind === "ok") documents.push(...parsed.documents);
    else problems.push(...parsed.problems);
  }
  return problems.length > 0 ? { kind: "bad", problems } : { kind: "ok", documents };
}

interface Part {
  readonly text: string;
  /** Line of the file where the text starts. */
  readonly firstLine: number;
}

function plainDocument(value: unknown, part: Part): ParsedDocument {
  return {
    value,
    length: part.text.length,
    locate: (path) => ({ line: part.firstLine - 1 + (lineInPlainYaml(part.text, path) ?? 1) }),
  };
}

/** Splits a text at lines that start with `---`. The rest of such a line belongs to the next document. */
function splitDocuments(text: string): readonly Part[] {
  const parts: Part[] = [];
  const separator = /(?:^|(?<=\n))---(?=[ \t\n]|$)/g;
  let firstLine = 1;
  let start = 0;
  for (;;) {
    const match = separator.exec(text);
    const part = text.slice(start, match?.index ?? text.length);
    if (part !== "" || start > 0) parts.push({ text: part, firstLine });
    if (match === null) return parts;
    for (let at = part.indexOf("\n"); at !== -1; at = part.indexOf("\n", at + 1)) firstLine++;
    start = match.index + 3;
  }
}
