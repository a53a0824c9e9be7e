import type { FieldPath } from "../../decode/decoded.ts";

/**
 * The line, from 1, of the last step of a path that exists in a text that JSON.parse accepts.
 *
 * Pure; O(text), and only ever run where something is wrong.
 */
export function lineInJson(text: string, path: FieldPath): number {
  const scanner = new Scanner(text);
  let found = scanner.skipSpace();
  for (const step of path) {
    const at = typeof step === "number" ? scanner.toItem(step) : scanner.toKey(step);
    if (at === undefined) break;
    found = at;
  }
  let line = 1;
  for (let newline = text.indexOf("\n"); newline !== -1 && newline < found; newline = text.indexOf("\n", newline + 1))
    line++;
  return line;
}

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

  /** Goes to the value of a key of the object here; returns where the key is. */
  toKey(name: string): number | undefined {
    if (!this.#open("{")) return undefined;
    while (this.#text[this.#at] === '"') {
      const keyAt = this.#at;
      this.#skipValue();
      const isWanted = JSON.parse(this.#text.slice(keyAt, this.#at)) === name;
      this.skipSpace();
      this.#at++;
      this.skipSpace();
      if (isWanted) return keyAt;
      this.#skipValue();
      this.#skipComma();
    }
    return undefined;
  }

  /** Goes to an item of the array here. */
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

  /** Passes over a value of any kind: a token, or all tokens up to the bracket that closes this one. */
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
