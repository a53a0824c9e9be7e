import type { FieldPath } from "../../decode/decoded.ts";

/**
 * Parses YAML as programs write it (`kubectl -o yaml`, `kpng to-file`): block mappings and sequences, one-line scalars,
 * `|` literals, `{}` and `[]`. For anything else, valid or not, it returns "other". Pure.
 *
 * `parseDocuments` calls it for each YAML document, and after "other" `parseAnyYaml`, which uses package yaml.
 * Separate, because speed is its only purpose: a List of 5 000 Services and 5 000 slices of 10 endpoints (21 MB) takes
 * 0.5 s, with package yaml 10 s and 2 GB. A test compares the results of both on thousands of mutated files.
 */
export function parsePlainYaml(text: string): PlainYamlResult {
  const reader = new PlainYaml(text, undefined);
  try {
    return { kind: "plain", value: reader.read() };
  } catch (error) {
    if (error instanceof NotPlain) return { kind: "other", line: reader.line };
    throw error;
  }
}

/** Result of {@link parsePlainYaml}. */
export type PlainYamlResult =
  | { readonly kind: "plain"; readonly value: unknown }
  /** Other YAML starts in this line, counted from 1, or in the previous one. */
  | { readonly kind: "other"; readonly line: number };

/**
 * Returns the line, counted from 1, of a field or of its nearest existing ancestor. The text must be plain YAML.
 * `parseDocuments` calls it for each problem to report.
 */
export function lineInPlainYaml(text: string, path: FieldPath): number | undefined {
  const reader = new PlainYaml(text, path);
  reader.read();
  return reader.foundLine;
}

class NotPlain extends Error {}

/** Maximum nesting. The objects that we read are less deep, and the stack allows far more. */
const maxDepth = 60;

// V8 uses stack space for each repetition of a group, so repetitions are limited. Longer texts are not plain.
const key = /[A-Za-z_](?:[\w./-]|:(?! |$)){0,1000}:(?= |$)/my;
const quotedKey = /"[\w ./:-]*":(?= |$)/my;
const doubleQuoted = /"[^"\\\n]*(?:\\["\\nrt][^"\\\n]*){0,1000000}"/y;
const singleQuoted = /'[^'\n]*(?:''[^'\n]*){0,1000000}'/y;
const plainScalar = /(?:[A-Za-z0-9_./+~$(<=^;]|-(?=[\d.]))[^\n]*/y;
const endOfLine = /(?: +#[^\n]*| *)$/my;
const wordsOfOtherTypes = /^(?:~|null|Null|NULL|true|True|TRUE|false|False|FALSE)$/;
const decimal = /^[-+]?\d+$/;
const float = /^[-+]?(?:\.\d+|\d+\.\d*)$/;
const otherNumber = /^(?:0[ox]|[-+]?\.[a-z]|[-+]?[\d.]+e)/i;

/** Recursive descent parser over the lines of the text. Throws NotPlain for other YAML. */
class PlainYaml {
  foundLine: number | undefined;
  /** Number of the current line, from 1. */
  line = 0;
  readonly #text: string;
  readonly #wanted: FieldPath | undefined;
  /** Offsets of the content and of the end of the current line, and the indentation of its content. */
  #at = 0;
  #end = -1;
  #indent = -1;

  constructor(text: string, wanted: FieldPath | undefined) {
    this.#text = text;
    this.#wanted = wanted;
  }

  read(): unknown {
    // Tabs and other control characters are left to package yaml: the rules for them are complicated.
    if (/[^\P{Cc}\n]|[\u2028\u2029\ufeff]/u.test(this.#text)) throw new NotPlain();
    this.#nextLine();
    if (this.#isAtEnd()) return null;
    if (this.#indent > 0) throw new NotPlain();
    const value = this.#collection(0, true);
    if (!this.#isAtEnd()) throw new NotPlain();
    return value;
  }

  #isAtEnd(): boolean {
    return this.#indent === -1;
  }

  /** Moves to the next line with content. After the last line, #indent is -1. */
  #nextLine(): void {
    const text = this.#text;
    for (;;) {
      const start = this.#end + 1;
      if (start >= text.length) {
        this.#indent = -1;
        this.#end = text.length;
        return;
      }
      const newline = text.indexOf("\n", start);
      this.#end = newline === -1 ? text.length : newline;
      this.line++;
      let at = start;
      while (text.charCodeAt(at) === 32) at++;
      if (at < this.#end && text.charCodeAt(at) !== 35) {
        this.#at = at;
        this.#indent = at - start;
        return;
      }
    }
  }

  #collection(depth: number, isOnPath: boolean): unknown {
    if (depth > maxDepth) throw new NotPlain();
    return this.#isDash() ? this.#sequence(depth, isOnPath) : this.#mapping(depth, isOnPath);
  }

  #isDash(): boolean {
    const text = this.#text;
    return text.charCodeAt(this.#at) === 45 && (this.#at + 1 === this.#end || text.charCodeAt(this.#at + 1) === 32);
  }

  #sequence(depth: number, isOnPath: boolean): unknown[] {
    const indent = this.#indent;
    const items: unknown[] = [];
    while (this.#indent === indent && this.#isDash()) {
      const isHere = isOnPath && this.#reach(depth, items.length);
      let at = this.#at + 1;
      while (this.#text.charCodeAt(at) === 32) at++;
      if (at < this.#end && this.#startsCollection(at)) {
        // A collection that starts on the line of the dash is indented by the column of its first key or dash.
        this.#indent += at - this.#at;
        this.#at = at;
        items.push(this.#collection(depth + 1, isHere));
      } else {
        items.push(this.#value(this.#at + 1, indent, false, depth + 1, isHere));
      }
    }
    if (this.#indent > indent) throw new NotPlain();
    return items;
  }

  #startsCollection(at: number): boolean {
    const text = this.#text;
    if (text.charCodeAt(at) === 45) return at + 1 === this.#end || text.charCodeAt(at + 1) === 32;
    return this.#match(key, at) !== undefined || this.#match(quotedKey, at) !== undefined;
  }

  #mapping(depth: number, isOnPath: boolean): Record<string, unknown> {
    const indent = this.#indent;
    const mapping: Record<string, unknown> = {};
    while (this.#indent === indent) {
      const matched = this.#match(key, this.#at);
      const quoted = matched === undefined ? this.#match(quotedKey, this.#at) : undefined;
      const name = matched?.slice(0, -1) ?? quoted?.slice(1, -2);
      if (name === undefined || name === "__proto__" || Object.hasOwn(mapping, name)) throw new NotPlain();
      if (matched !== undefined && wordsOfOtherTypes.test(name)) throw new NotPlain();
      const isHere = isOnPath && this.#reach(depth, name);
      const at = this.#at + (matched ?? quoted ?? "").length;
      mapping[name] = this.#value(at, indent, true, depth + 1, isHere);
    }
    if (this.#indent > indent) throw new NotPlain();
    return mapping;
  }

  /** Records the line if `step` matches the path that is searched for. */
  #reach(depth: number, step: string | number): boolean {
    if (this.#wanted?.[depth] !== step) return false;
    this.foundLine = this.line;
    return true;
  }

  /** Parses the value after a dash or a colon, and moves to the line after it. */
  #value(from: number, indent: number, isInMapping: boolean, depth: number, isOnPath: boolean): unknown {
    const text = this.#text;
    if (this.#match(endOfLine, from) !== undefined) {
      this.#nextLine();
      if (this.#indent > indent) return this.#collection(depth, isOnPath);
      // A sequence in a mapping may have its dashes in the column of the key.
      if (isInMapping && this.#indent === indent && this.#isDash()) return this.#collection(depth, isOnPath);
      return null;
    }
    let at = from;
    while (text.charCodeAt(at) === 32) at++;
    if (text[at] === "|") return this.#literal(at, indent);
    const { value, end } = this.#scalar(at);
    if (this.#match(endOfLine, end) === undefined) throw new NotPlain();
    this.#nextLine();
    // A deeper line would continue the scalar.
    if (this.#indent > indent) throw new NotPlain();
    return value;
  }

  #scalar(at: number): { readonly value: unknown; readonly end: number } {
    const text = this.#text;
    if (text.startsWith("{}", at)) return { value: {}, end: at + 2 };
    if (text.startsWith("[]", at)) return { value: [], end: at + 2 };
    const double = this.#match(doubleQuoted, at);
    if (double !== undefined) return { value: JSON.parse(double), end: at + double.length };
    const single = this.#match(singleQuoted, at);
    if (single !== undefined) return { value: single.slice(1, -1).replaceAll("''", "'"), end: at + single.length };
    const rest = this.#match(plainScalar, at);
    if (rest === undefined) throw new NotPlain();
    const comment = rest.indexOf(" #");
    const scalar = (comment === -1 ? rest : rest.slice(0, comment)).trimEnd();
    if (scalar.includes(": ") || scalar.endsWith(":")) throw new NotPlain();
    return { value: resolve(scalar), end: at + scalar.length };
  }

  /** Parses a literal block, `|` or `|-`. */
  #literal(at: number, parentIndent: number): string {
    const header = /^\|(-?) *$/.exec(this.#text.slice(at, this.#end));
    if (header === null) throw new NotPlain();
    const lines: string[] = [];
    let indent: number | undefined;
    for (;;) {
      const start = this.#end + 1;
      if (start >= this.#text.length) break;
      const newline = this.#text.indexOf("\n", start);
      const end = newline === -1 ? this.#text.length : newline;
      const line = this.#text.slice(start, end);
      const column = line.search(/[^ ]/);
      if (column === -1) {
        if (line.length > (indent ?? 0)) throw new NotPlain();
        lines.push("");
      } else {
        indent ??= column;
        if (column <= parentIndent) break;
        if (column < indent) throw new NotPlain();
        lines.push(line.slice(indent));
      }
      this.#end = end;
      this.line++;
    }
    while (lines.at(-1) === "") lines.pop();
    if (lines.length === 0) throw new NotPlain();
    this.#nextLine();
    return lines.join("\n") + (header[1] === "-" ? "" : "\n");
  }

  #match(pattern: RegExp, at: number): string | undefined {
    pattern.lastIndex = at;
    return pattern.exec(this.#text)?.[0];
  }
}

/** Returns the value of an unquoted scalar in the core schema of YAML 1.2. */
function resolve(scalar: string): unknown {
  if (wordsOfOtherTypes.test(scalar)) {
    return /^[tT]/.test(scalar) ? true : /^[fF]/.test(scalar) ? false : null;
  }
  if (!/^[-+.\d]/.test(scalar)) return scalar;
  if (decimal.test(scalar)) return Number.parseInt(scalar, 10);
  if (float.test(scalar)) return Number.parseFloat(scalar);
  if (otherNumber.test(scalar)) throw new NotPlain();
  return scalar;
}
