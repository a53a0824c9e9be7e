import { type ChainBody, type ChainId, rulesOf, splitChainId } from "../render/rule.ts";

/**
 * Returns the canonical text of a rule. Most rules that mean the same have the same canonical text, whichever version
 * of iptables printed them.
 *
 * Our rules are rendered as iptables-save 1.8.9 prints them. Other versions may print the parts in a different order,
 * different quotes, a different last digit of a probability, a mask without effect, or an older name of an option.
 * Every version prints an embedded IPv4 address in an IPv6 address with dots, whereas we write hexadecimal numbers.
 *
 * If two rules mean the same but their canonical texts differ, the chain is rewritten needlessly, but no rule becomes
 * wrong.
 *
 * *Shape of the argument:* the part of the rule that follows `-A CHAIN `.
 */
export function canonicalRule(text: string): string {
  return canonicalGroups(text).join(" ");
}

/** Whether two rules have the same text or the same canonical text. */
export function isSameRule(a: string, b: string): boolean {
  return a === b || canonicalRule(a) === canonicalRule(b);
}

/** Whether two lists have the same rules in the same order. */
export function areSameRules(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((rule, at) => isSameRule(rule, b[at] ?? ""));
}

/** Returns the parts of a rule in canonical form, sorted by their text. */
function canonicalGroups(text: string): readonly string[] {
  const words = splitWords(text);
  const groups: string[][] = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at] ?? "";
    const isNegated = word === "!";
    const option = isNegated ? (words[at + 1] ?? "") : word;
    // A match (`-m NAME`) and the options that follow it form one group; every other part is a group of its own.
    const isStart = /^-[a-z]$/.test(option) || groups.length === 0;
    if (isStart) groups.push([]);
    const group = groups.at(-1);
    if (isNegated) group?.push("!");
    group?.push(option);
    if (isNegated) at++;
  }
  return groups
    .map((group) => canonicalGroup(group.join(" ")))
    .filter((group) => group !== "")
    .sort();
}

function canonicalGroup(group: string): string {
  return group
    .replace(/^-m (tcp|udp|sctp)$/, "")
    .replace(/(--probability) (\S+)/, (_all, name, value) => `${name} ${Math.round(Number(value) * 2 ** 31)}`)
    .replace(/ --mask (255\.255\.255\.255|ffff(:ffff){7})/, "")
    .replace(" --rsource", "")
    .replace(/--or-mark (0x[0-9a-f]+)/, "--set-xmark $1/$1")
    .replace(/--xor-mark (0x[0-9a-f]+)/, "--set-xmark $1/0x0")
    .replace(/^-m state --state/, "-m conntrack --ctstate")
    .replace(/(:)(\d+)\.(\d+)\.(\d+)\.(\d+)/g, (_all, colon, ...bytes) => `${colon}${toHexWords(bytes)}`)
    .replace(/^((?:! )?-[sd] [\d.]+)$/, "$1/32")
    .replace(/^((?:! )?-[sd] [0-9a-f:]+)$/, "$1/128");
}

/**
 * Returns the last four bytes of an IPv6 address, given as decimal numbers, in hexadecimal: `::ffff:10.0.0.1` ends in
 * `a00:1`.
 */
function toHexWords(bytes: readonly (string | number)[]): string {
  const [a = 0, b = 0, c = 0, d = 0] = bytes.slice(0, 4).map(Number);
  return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
}

/** Splits a string at blanks outside quotes, and removes the quotes. */
function splitWords(text: string): string[] {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

/**
 * Returns the installed chains, but with the text from `desired` for each chain whose rules mean the same.
 *
 * iptables-save may print a rule differently from how it was written. Comparing the result with `desired` as text finds
 * only real differences, so a restart rewrites only chains that really differ, and a drift check reports only changes
 * by other programs.
 *
 * Pure; O(chains + rules of the chains whose text differs).
 */
export function adoptChains(
  installed: ReadonlyMap<ChainId, ChainBody>,
  desired: ReadonlyMap<ChainId, ChainBody>,
): Map<ChainId, ChainBody> {
  const adopted = new Map(installed);
  for (const [id, read] of installed) {
    const body = desired.get(id);
    if (body === undefined || body === read) continue;
    const { chain } = splitChainId(id);
    if (areSameRules(rulesOf(chain, read), rulesOf(chain, body))) adopted.set(id, body);
  }
  return adopted;
}
