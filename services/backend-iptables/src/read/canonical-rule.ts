/**
 * Returns a form in which rules that mean the same are mostly the same text, whichever version of iptables printed them.
 *
 * Rules are rendered as iptables-save 1.8.9 prints them, so this is needed only where another version differs: order of
 * the parts, quotes, a probability's last digits, a mask that means nothing, an old name for an option; and for IPv6
 * addresses that hold an IPv4 one, which every version prints with dots and which we write as any other. Two rules
 * that mean the same but stay different here cost a needless rewrite, never a wrong rule.
 *
 * *Shape of the argument:* what follows `-A CHAIN `.
 */
export function canonicalRule(text: string): string {
  return canonicalGroups(text).join(" ");
}

/** True if two rules are the same text, or mean the same. */
export function isSameRule(a: string, b: string): boolean {
  return a === b || canonicalRule(a) === canonicalRule(b);
}

/**
 * Returns what iptables itself prints of a rule: protocol, addresses, interfaces, and where it leads.
 *
 * These words have been the same in all versions, while each extension (`-m`, and the options of a target) chooses its own.
 *
 * *Shape of the argument:* what follows `-A CHAIN `.
 */
export function coreOfRule(text: string): string {
  const groups = canonicalGroups(text).filter((group) => !/^(?:! )?-m /.test(group));
  return groups.flatMap((group) => group.match(/^(?:! )?-[a-z] \S+|--to-destination \S+/g) ?? []).join(" ");
}

/** The parts of a rule, each in one form, in the order of their text. */
function canonicalGroups(text: string): readonly string[] {
  const words = splitWords(text);
  const groups: string[][] = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at] ?? "";
    const isNegated = word === "!";
    const option = isNegated ? (words[at + 1] ?? "") : word;
    // A match with its options, and each of the rest, is a group; options of a match follow its `-m NAME`.
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

/** The last four bytes of an IPv6 address as two words: `::ffff:10.0.0.1` ends in `a00:1`. */
function toHexWords(bytes: readonly (string | number)[]): string {
  const [a = 0, b = 0, c = 0, d = 0] = bytes.slice(0, 4).map(Number);
  return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
}

/** Splits at blanks outside quotes; quotes are removed. */
function splitWords(text: string): string[] {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}
