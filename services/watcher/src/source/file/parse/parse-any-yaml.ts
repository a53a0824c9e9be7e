import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isScalar,
  LineCounter,
  type Node,
  parseAllDocuments,
} from "yaml";
import type { FieldPath } from "../../decode/decoded.ts";
import { findDeepNesting } from "./deep-nesting.ts";
import type { ParsedDocument, ParsedDocuments, TextPosition, TextProblem } from "./parsed-document.ts";

/**
 * Parses YAML 1.2 with package yaml, where `parsePlainYaml` cannot. `firstLine` is the line of the file where the text
 * starts, `otherLine` the line of the text where it stops being plain YAML. Pure, never throws.
 *
 * `parseDocuments` calls it for few files, because package yaml is slow and takes much memory. Separate from
 * `parsePlainYaml`, so that only this file needs the package and its limits.
 */
export function parseAnyYaml(text: string, firstLine: number, otherLine: number): ParsedDocuments {
  if (text.length > maxLength) {
    const problem =
      "here or in the previous line is a syntax error, or special YAML (anchors, flow or folded style, tabs), which is " +
      `limited to documents of ${maxLength} characters; this one has ${text.length}`;
    return { kind: "bad", problems: [{ line: firstLine - 1 + Math.max(otherLine, 1), problem }] };
  }
  const lines = new LineCounter();
  const positionOf = (offset: number): TextPosition => {
    const { line, col } = lines.linePos(offset);
    return { line: line + firstLine - 1, column: col };
  };
  const deepOffset = findDeepNesting(text);
  if (deepOffset !== undefined) {
    const before = text.slice(0, deepOffset).split("\n");
    const place = { line: firstLine + before.length - 1, column: (before.at(-1)?.length ?? 0) + 1 };
    return { kind: "bad", problems: [{ ...place, problem: "nested too deeply" }] };
  }
  try {
    const parsed: readonly Document[] = parseAllDocuments(text, {
      lineCounter: lines,
      prettyErrors: false,
      logLevel: "error",
      uniqueKeys: true,
    });
    const problems: TextProblem[] = parsed.flatMap((document) =>
      document.errors.map((error) => ({ ...positionOf(error.pos[0]), problem: error.message })),
    );
    if (problems.length > 0) return { kind: "bad", problems };
    const documents: ParsedDocument[] = parsed.map((document) => ({
      value: document.toJS({ maxAliasCount }),
      length: text.length,
      locate: (path) => positionOf(offsetOf(document, path)),
    }));
    return { kind: "ok", documents };
  } catch (error) {
    // package yaml throws a ReferenceError for too many aliases. Deep nesting overflows the stack: a RangeError.
    const message = error instanceof RangeError ? "nested too deeply" : String(error);
    return { kind: "bad", problems: [{ line: firstLine, problem: message }] };
  }
}

/**
 * Longest text that package yaml parses, in characters: 8 MiB take 5 s and 0.9 GB. Longer texts could exhaust the
 * memory of the process.
 */
const maxLength = 8 * 1_048_576;

/**
 * Limit for the expansion of aliases, so that nested aliases (a "billion laughs" attack) are a problem and not a crash.
 * It equals the default of package yaml.
 */
const maxAliasCount = 100;

function offsetOf(document: Document, path: FieldPath): number {
  let node: Node | null = document.contents;
  let offset = node?.range?.[0] ?? 0;
  for (const step of path) {
    const target: Node | undefined = isAlias(node) ? node.resolve(document) : (node ?? undefined);
    if (!isCollection(target)) break;
    let next: unknown;
    if (isMap(target)) {
      const pair = target.items.find(({ key }) => (isScalar(key) ? String(key.value) : String(key)) === String(step));
      if (pair === undefined) break;
      offset = isNode(pair.key) ? (pair.key.range?.[0] ?? offset) : offset;
      next = pair.value;
    } else {
      next = typeof step === "number" ? target.items[step] : undefined;
      if (!isNode(next)) break;
      offset = next.range?.[0] ?? offset;
    }
    node = isNode(next) ? next : null;
  }
  return offset;
}
