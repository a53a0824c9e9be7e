import type { FieldPath } from "../../decode/decoded.ts";

/**
 * Returns the line, counted from 1, of a field in valid JSON text, or of its nearest existing ancestor.
 *
 * `parseDocuments` calls it when `kpng file` reports an invalid or ignored field of a JSON file. JSON.parse keeps no
 * positions, so the text is scanned again, only for the fields to report.
 *
 * Pure; O(text × depth of the field). Separate, because only this file scans JSON: for YAML, `lineInPlainYaml` and
 * package yaml find the line.
 */
export function lineInJson(text: string, path: FieldPath): number {
  const scanner = new Scanner(text);
  let found = scanner.skipSpace();
  for (const step of path) {
    const offset = typeof step === "number" ? scanner.toItem(step) : scanner.toKey(step);
    if (offset === undefined) break;
    found = offset;
  }
  let line = 1;
  for (let newline = text.indexOf("\n"); newline !== -1 && newline < found; newline = text.indexOf("\n", newline + 1))
    line++;
  return line;
}

/** A position in JSON text, which moves from value to value. */
class Scanner {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  skipSpace(): number {
    while (/[\s\ufeff]/.test(this.#text.charAt(this.#at))) this.#at++;
    return this.#at;
  }

  /**
   * Moves to the value of a key of the current object. Returns the offset of the key. If the key occurs several times,
   * the last one counts, as in JSON.parse.
   */
  toKey(name: string): number | undefined {
    if (!this.#open("{")) return undefined;
    let found: { readonly keyAt: number; readonly valueAt: number } | undefined;
    while (this.#text[this.#at] === '"') {
      const keyAt = this.#at;
      this.#skipValue();
      const isWanted = JSON.parse(this.#text.slice(keyAt, this.#at)) === name;
      this.skipSpace();
      this.#at++;
      this.skipSpace();
      if (isWanted) found = { keyAt, valueAt: this.#at };
      this.#skipValue();
      this.#skipComma();
    }
    if (found !== undefined) this.#at = found.valueAt;
    return found?.keyAt;
  }

  /** Moves to an item of the current array. Returns its offset. */
  toItem(index: number): number | undefined {
    if (!this.#open("[")) return undefined;
    for (let passed = 0; this.#text[this.#at] !== "]"; passed++) {
      if (passed === index) return this.#at;
      this.#skipValue();
      this.#skipComma();
    }
    return undefined;
  }

  #open(bracket: "{" | "["): boolean {
    if (this.#text[this.#at] !== bracket) return false;
    this.#at++;
    this.skipSpace();
    return true;
  }

  #skipComma(): void {
    this.skipSpace();
    if (this.#text[this.#at] === ",") this.#at++;
    this.skipSpace();
  }

  /** Skips a value of any type: one token, or all tokens up to the matching bracket. */
  #skipValue(): void {
    const token = /"(?:[^"\\]|\\.)*"|[[\]{}]|[^[\]{}",:\s]+|[,:\s]+/gy;
    token.lastIndex = this.#at;
    let depth = 0;
    do {
      const text = token.exec(this.#text)?.[0];
      if (text === undefined) break;
      if (text === "{" || text === "[") depth++;
      else if (text === "}" || text === "]") depth--;
    } while (depth > 0);
    this.#at = token.lastIndex === 0 ? this.#text.length : token.lastIndex;
  }
}
