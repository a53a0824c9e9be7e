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
import type { ParsedDocuments, Position, SourceDocument, TextProblem } from "./parsed-document.ts";

/**
 * Longest text that package yaml is given, in characters: 8 MiB, 5 s and 0.9 GB. Beyond it the process would run out of
 * memory, which helps nobody.
 */
const maxLength = 8 * 1_048_576;

/**
 * How often aliases may make one anchor's content count: package yaml's own limit, stated here because a bomb of ten
 * nested aliases (a "billion laughs") must end as a problem.
 */
const maxAliasCount = 100;

/**
 * Parses any YAML 1.2 with package yaml. `firstLine` is the line of the file on which the text starts, `otherLine` the line of
 * the text that is not plain YAML.
 *
 * Pure, never throws.
 */
export function parseAnyYaml(text: string, firstLine: number, otherLine: number): ParsedDocuments {
  if (text.length > maxLength) {
    const problem =
      "here or a line above is an error, or YAML that is not plain (anchors, flow or folded style, tabs); that is read " +
      `only in documents of up to ${maxLength} characters, and this one has ${text.length}`;
    return { kind: "bad", problems: [{ line: firstLine - 1 + Math.max(otherLine, 1), problem }] };
  }
  const lines = new LineCounter();
  const place = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { line: line + firstLine - 1, column: col };
  };
  try {
    const parsed: readonly Document[] = parseAllDocuments(text, {
      lineCounter: lines,
      prettyErrors: false,
      logLevel: "error",
      uniqueKeys: true,
    });
    const problems: TextProblem[] = parsed.flatMap((document) =>
      document.errors.map((error) => ({ ...place(error.pos[0]), problem: error.message })),
    );
    if (problems.length > 0) return { kind: "bad", problems };
    const documents: SourceDocument[] = parsed.map((document) => ({
      value: document.toJS({ maxAliasCount }),
      length: text.length,
      locate: (path) => place(offsetOf(document, path)),
    }));
    return { kind: "ok", documents };
  } catch (error) {
    // Too many aliases is a ReferenceError, too deep a RangeError of the stack.
    const message = error instanceof RangeError ? "it is nested too deeply" : String(error);
    return { kind: "bad", problems: [{ line: firstLine, problem: message }] };
  }
}

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
