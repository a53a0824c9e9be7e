import { compareText } from "@kpng/model/text-order.ts";

/**
 * Formats text as a YAML scalar: unquoted if every reader of YAML 1.1 and 1.2 reads it as this text, else in double
 * quotes.
 *
 * Unquoted are words without a meaning in YAML 1.1 (unlike "yes" and "n"), IPv4 addresses and IPv4 CIDRs. Other text
 * that starts with a digit is quoted: in YAML 1.1, "1:20" is a number and "2001-01-01" a date.
 *
 * `state-lines.ts` and `format-state.ts` make state files with the functions of this file. Separate from both, because
 * it knows only YAML.
 */
export function scalar(text: string): string {
  if (isWord.test(text)) return isSpecial.test(text) ? `"${text}"` : text;
  if (isIPv4.test(text)) return text;
  // YAML must escape more than JSON: DEL, C1 control characters and the line separators.
  return JSON.stringify(text).replace(
    /[\p{Cc}\u2028\u2029\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** No lines: the text of a key that is omitted. */
export const noLines: readonly string[] = [];

const isWord = /^[A-Za-z](?:[\w./:-]*[\w/])?$/;
const isSpecial = /^(?:y|n|yes|no|on|off|true|false|null)$/i;
const isIPv4 = /^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?:\/\d+)?$/;

/** Returns the lines of a sequence under a key. Each item is a list of lines. Empty: `key: []`. */
export function listLines(indent: string, key: string, items: readonly (readonly string[])[]): string[] {
  if (items.length === 0) return [`${indent}${key}: []`];
  const lines = [`${indent}${key}:`];
  for (const item of items) {
    for (const [index, line] of item.entries()) lines.push(`${indent}${index === 0 ? "- " : "  "}${line}`);
  }
  return lines;
}

/** Returns the lines of a mapping under a key, sorted by name. Empty: `key: {}`. */
export function mapLines(indent: string, key: string, entries: Readonly<Record<string, string>>): string[] {
  const names = Object.keys(entries).sort(compareText);
  if (names.length === 0) return [`${indent}${key}: {}`];
  return [`${indent}${key}:`, ...names.map((name) => `${indent}  ${scalar(name)}: ${scalar(entries[name] ?? "")}`)];
}
