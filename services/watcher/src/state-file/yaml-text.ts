import { compareText } from "@kpng/model/text-order.ts";

export const nothing: readonly string[] = [];

/**
 * A text as YAML scalar: bare where every reader of YAML 1.1 and 1.2 takes it for this text, in double quotes elsewhere.
 *
 * Bare: words that mean nothing in YAML 1.1 ("yes" and "n" do), and IPv4 addresses and CIDRs. Other texts that start with
 * a digit are quoted: YAML 1.1 takes "1:20" for a number and "2001-01-01" for a date.
 */
export function scalar(text: string): string {
  if (isWord.test(text)) return isSpecial.test(text) ? `"${text}"` : text;
  if (isIPv4.test(text)) return text;
  // JSON escapes less than YAML must: DEL, C1 and the line separators are no printable characters of YAML.
  return JSON.stringify(text).replace(
    /[\p{Cc}\u2028\u2029\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const isWord = /^[A-Za-z](?:[\w./:-]*[\w/])?$/;
const isSpecial = /^(?:y|n|yes|no|on|off|true|false|null)$/i;
const isIPv4 = /^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?:\/\d+)?$/;

/** Lines of a sequence under a key; each item is its own lines. Empty: `key: []`. */
export function list(indent: string, key: string, items: readonly (readonly string[])[]): string[] {
  if (items.length === 0) return [`${indent}${key}: []`];
  const lines = [`${indent}${key}:`];
  for (const item of items) {
    for (const [index, line] of item.entries()) lines.push(`${indent}${index === 0 ? "- " : "  "}${line}`);
  }
  return lines;
}

/** Lines of a mapping under a key, by name. Empty: `key: {}`. */
export function map(indent: string, key: string, entries: Readonly<Record<string, string>>): string[] {
  const names = Object.keys(entries).sort(compareText);
  if (names.length === 0) return [`${indent}${key}: {}`];
  return [`${indent}${key}:`, ...names.map((name) => `${indent}  ${scalar(name)}: ${scalar(entries[name] ?? "")}`)];
}
