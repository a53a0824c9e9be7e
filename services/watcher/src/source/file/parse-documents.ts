import {
  constructFromEvents,
  EVENT_ID,
  type Event,
  getScalarValue,
  parseEvents,
  SCALAR_STYLE,
  YAMLException,
} from "js-yaml";
import type { FieldPath } from "../decode/decoded.ts";

/** One document of a file: JSON, or the YAML between two `---` lines. */
export interface ParsedDocument {
  /** Value as from JSON.parse; null for an empty document. Parts may be shared (aliases). */
  readonly value: unknown;
  /**
   * Returns the position of a field, or of its nearest existing ancestor. *Cost:* the first call for a file parses it
   * again, so call it only for what is reported.
   */
  locate(path: FieldPath): TextPosition;
}

/** Position in a text, counted from 1. */
export interface TextPosition {
  readonly line?: number | undefined;
  readonly column?: number | undefined;
}

/** Syntax error of a text. */
interface TextProblem extends TextPosition {
  readonly problem: string;
}

/** Result of parsing a file. */
type ParsedDocuments =
  | { readonly kind: "ok"; readonly documents: readonly ParsedDocument[] }
  | { readonly kind: "bad"; readonly problem: TextProblem };

/**
 * Parses the text of a file: JSON, or any number of documents of YAML 1.2.
 *
 * Duplicate keys are a problem in YAML; in JSON the last one wins, as in JSON.parse. Neither JSON.parse nor js-yaml's
 * values know positions. If one is needed, the text is parsed again to js-yaml's events, which do.
 *
 * Pure, never throws. *Cost:* JSON 0.3 s for 40 MB; YAML 1 s of CPU and 400 MB of memory for 18 MB, positions as much
 * again. Package yaml takes ten times as long.
 */
export function parseDocuments(rawText: string): ParsedDocuments {
  const text = rawText.charCodeAt(0) === 0xfeff ? rawText.slice(1) : rawText;
  const isBracketed = /^\s*[[{]/.test(text);
  if (isBracketed) {
    try {
      const value: unknown = JSON.parse(text);
      // Tabs are white space in JSON, but no indentation in YAML. A string of JSON contains none.
      const locate = makeLocator(text.replaceAll("\t", " "));
      return { kind: "ok", documents: [{ value, locate: (path) => locate(0, path) }] };
    } catch {
      // A YAML document may start with a bracket, too.
    }
  }
  if (text.length > maxYamlLength) {
    const format = isBracketed ? "invalid JSON, and as YAML" : "YAML";
    return bad({ problem: `${format} longer than ${maxYamlLength} characters: write JSON instead` });
  }
  try {
    const values = constructFromEvents(parseEvents(text, limits), { source: text, ...limits });
    const locate = makeLocator(text);
    return { kind: "ok", documents: values.map((value, index) => ({ value, locate: (path) => locate(index, path) })) };
  } catch (error) {
    if (!(error instanceof YAMLException)) return bad({ problem: String(error) });
    const { line, column } = error.mark ?? {};
    if (line === undefined || column === undefined) return bad({ problem: error.reason });
    return bad({ line: line + 1, column: column + 1, problem: error.reason });
  }
}

function bad(problem: TextProblem): ParsedDocuments {
  return { kind: "bad", problem };
}

/** Longest text that is parsed as YAML, in characters: it takes 1.5 GB of memory. */
const maxYamlLength = 64 * 1_048_576;

/** Kubernetes objects have about ten levels. Aliases of aliases ("billion laughs") multiply, so they are few. */
const limits = { maxDepth: 100, maxAliases: 100 };

/** Returns a function that finds the position of a field in one of the documents of a text. */
function makeLocator(text: string): (document: number, path: FieldPath) => TextPosition {
  let events: readonly Event[] | undefined;
  let starts: readonly number[] = [];
  return (document, path) => {
    if (events === undefined) {
      events = parseAgain(text);
      starts = [...events.entries()].flatMap(([at, { type }]) => (type === EVENT_ID.DOCUMENT ? [at] : []));
    }
    const start = starts[document];
    return start === undefined ? {} : positionAt(text, offsetOf(text, events, start + 1, path));
  };
}

function parseAgain(text: string): readonly Event[] {
  try {
    return parseEvents(text, {});
  } catch {
    // JSON that is not YAML, such as a key of more than 1 024 characters: the file name has to do.
    return [];
  }
}

function positionAt(text: string, offset: number): TextPosition {
  let [line, lineStart] = [1, 0];
  for (let end = text.indexOf("\n"); end >= 0 && end < offset; end = text.indexOf("\n", lineStart)) {
    line += 1;
    lineStart = end + 1;
  }
  return { line, column: offset - lineStart + 1 };
}

/** Returns the offset of a field below the value at event `at`; of its nearest existing ancestor if it is absent. */
function offsetOf(text: string, events: readonly Event[], at: number, path: FieldPath): number {
  let offset = startOf(events[at]) ?? 0;
  let next = at;
  for (const step of path) {
    const found = childOf(text, events, next, step);
    if (found === undefined) break;
    next = found.valueAt;
    offset = startOf(events[found.nameAt]) ?? offset;
  }
  return offset;
}

/** Returns the events of a key and its value, or of an item. The last of several equal keys counts. */
function childOf(text: string, events: readonly Event[], at: number, step: string | number) {
  let found: { readonly nameAt: number; readonly valueAt: number } | undefined;
  const { type } = events[at] ?? {};
  if (type !== EVENT_ID.MAPPING && type !== EVENT_ID.SEQUENCE) return undefined;
  let next = at + 1;
  for (let index = 0; next < events.length && events[next]?.type !== EVENT_ID.POP; index += 1) {
    if (type === EVENT_ID.SEQUENCE) {
      if (index === step) return { nameAt: next, valueAt: next };
    } else {
      const key = events[next];
      const valueAt = endOf(events, next);
      if (key?.type === EVENT_ID.SCALAR && getScalarValue(text, key) === String(step))
        found = { nameAt: next, valueAt };
      next = valueAt;
    }
    next = endOf(events, next);
  }
  return found;
}

/** Returns the index after the value at event `at`. */
function endOf(events: readonly Event[], at: number): number {
  let depth = 0;
  for (let next = at; next < events.length; next += 1) {
    const { type } = events[next] ?? {};
    if (type === EVENT_ID.MAPPING || type === EVENT_ID.SEQUENCE) depth += 1;
    else if (type === EVENT_ID.POP) depth -= 1;
    if (depth === 0) return next + 1;
  }
  return events.length;
}

function startOf(event: Event | undefined): number | undefined {
  if (event === undefined) return undefined;
  if (event.type === EVENT_ID.SCALAR) {
    const { SINGLE_QUOTED, DOUBLE_QUOTED } = SCALAR_STYLE;
    return event.valueStart - Number(event.style === SINGLE_QUOTED || event.style === DOUBLE_QUOTED);
  }
  if (event.type === EVENT_ID.ALIAS) return event.anchorStart - 1;
  return event.type === EVENT_ID.MAPPING || event.type === EVENT_ID.SEQUENCE ? event.start : undefined;
}
