/** A condition of a rule, of the kinds that kube-proxy and kpng-iptables use. */
export type Match =
  | { readonly kind: "address"; readonly of: "source" | "destination"; readonly cidr: string; readonly isNot: boolean }
  | { readonly kind: "protocol"; readonly protocol: string; readonly isNot: boolean }
  | { readonly kind: "port"; readonly from: number; readonly to: number; readonly isNot: boolean }
  | { readonly kind: "localAddress"; readonly of: "source" | "destination"; readonly isNot: boolean }
  | { readonly kind: "mark"; readonly value: number; readonly mask: number; readonly isNot: boolean }
  | { readonly kind: "state"; readonly states: readonly string[]; readonly isNot: boolean }
  | { readonly kind: "originalAddress"; readonly cidr: string; readonly isNot: boolean }
  | { readonly kind: "originalPort"; readonly port: number; readonly isNot: boolean }
  | { readonly kind: "interface"; readonly of: "in" | "out"; readonly pattern: string; readonly isNot: boolean }
  /** Depends on chance, or on the earlier connections of the client. */
  | { readonly kind: "maybe" };

/** The action of a rule whose conditions hold. */
export type Target =
  | { readonly kind: "jump"; readonly chain: string }
  | { readonly kind: "return" | "accept" | "drop" | "reject" | "masquerade" | "none" }
  | { readonly kind: "dnat"; readonly address: string; readonly port: number | undefined }
  /** mark = (mark & ~mask) ^ value, as --set-xmark. */
  | { readonly kind: "mark"; readonly value: number; readonly mask: number };

/** A parsed rule. */
export interface Rule {
  readonly matches: readonly Match[];
  readonly target: Target;
  /**
   * How long a client stays with its endpoint; undefined if the rule does not ask for earlier connections. *Unit:*
   * seconds.
   */
  readonly affinitySeconds?: number | undefined;
  /** Whether the rule represents the policy of a built-in chain. */
  readonly isPolicy?: true | undefined;
  /** The original text, for messages. */
  readonly text: string;
}

/** Table name, then chain name. */
export type Ruleset = ReadonlyMap<string, ReadonlyMap<string, readonly Rule[]>>;

/** The value of an option, and its negation. */
interface Context {
  /** Takes the next word as the value of the option. */
  value(): string;
  /** True if "!" stands before it. */
  readonly isNot: boolean;
}

/**
 * Parses the rest of a line after `-A CHAIN`. Errors: an option or target that the tracer does not know, because skipping
 * the rule would be a guess.
 */
function parseRule(text: string): Rule {
  const words = splitWords(text);
  const matches: Match[] = [];
  let target: Target = { kind: "none" };
  for (let at = 0; at < words.length; ) {
    const isNot = words[at] === "!";
    if (isNot) at += 1;
    const option = words[at] ?? "";
    at += 1;
    const value = (): string => {
      const word = words[at];
      if (word === undefined) throw new Error(`no value for ${option}: ${text}`);
      at += 1;
      return word;
    };
    if (option === "-j") {
      const name = value();
      target = parseTarget(name, words.slice(at), text);
      break;
    }
    const match = parseMatch(option, { value, isNot }, text);
    if (match !== undefined) matches.push(match);
  }
  const isRemembering = words.includes("--rcheck") || words.includes("--update");
  if (!isRemembering) return { matches, target, text };
  return { matches, target, text, affinitySeconds: Number(words[words.indexOf("--seconds") + 1] ?? 0) };
}

/** Parses an option; undefined if it restricts nothing. */
function parseMatch(option: string, { value, isNot }: Context, text: string): Match | undefined {
  switch (option) {
    case "-s":
      return { kind: "address", of: "source", cidr: value(), isNot };
    case "-d":
      return { kind: "address", of: "destination", cidr: value(), isNot };
    case "-p":
      return { kind: "protocol", protocol: value(), isNot };
    case "--dport": {
      const [from = "0", to = from] = value().split(":");
      return { kind: "port", from: Number(from), to: Number(to), isNot };
    }
    case "--dst-type":
    case "--src-type":
      if (value() !== "LOCAL") throw new Error(`not known to the tracer: ${text}`);
      return { kind: "localAddress", of: option === "--dst-type" ? "destination" : "source", isNot };
    case "--mark": {
      const [number = "0", mask = "0xffffffff"] = value().split("/");
      return { kind: "mark", value: Number(number), mask: Number(mask), isNot };
    }
    case "--ctstate":
      return { kind: "state", states: value().split(","), isNot };
    case "--ctorigdst":
      return { kind: "originalAddress", cidr: value(), isNot };
    case "--ctorigdstport":
      return { kind: "originalPort", port: Number(value()), isNot };
    case "-i":
    case "-o":
      return { kind: "interface", of: option === "-i" ? "in" : "out", pattern: value(), isNot };
    case "--probability":
    case "--rcheck":
    case "--update":
      if (option === "--probability") value();
      return { kind: "maybe" };
    // Modules, comments, counters, and the further options of these modules do not restrict traced packets.
    case "-m":
    case "--comment":
    case "--mode":
    case "--seconds":
    case "--name":
    case "--mask":
    case "--nfacct-name":
      value();
      return undefined;
    case "--set":
    case "--reap":
    case "--rsource":
      return undefined;
    default:
      throw new Error(`not known to the tracer: ${option} in ${text}`);
  }
}

function parseTarget(name: string, options: readonly string[], text: string): Target {
  switch (name) {
    case "RETURN":
    case "ACCEPT":
    case "DROP":
    case "REJECT":
    case "MASQUERADE":
      return { kind: name.toLowerCase() as Lowercase<typeof name> };
    case "DNAT": {
      const destination = options[options.indexOf("--to-destination") + 1] ?? "";
      // Without a port, an IPv6 address has no brackets.
      const [, v6, v4, port, bare] = /^(?:(?:\[(.+)\]|([\d.]+))(?::(\d+))?|([\da-f:]+))$/.exec(destination) ?? [];
      const address = v6 ?? v4 ?? bare;
      if (address === undefined) throw new Error(`not known to the tracer: ${text}`);
      return { kind: "dnat", address, port: port === undefined ? undefined : Number(port) };
    }
    case "MARK":
      return parseMark(options, text);
    default:
      return { kind: "jump", chain: name };
  }
}

/** Parses a change of the mark; --or-mark and --xor-mark are short forms of --set-xmark. */
function parseMark([option, word = ""]: readonly string[], text: string): Target {
  const [value = "0", mask = "0xffffffff"] = word.split("/");
  if (option === "--set-xmark") return { kind: "mark", value: Number(value), mask: Number(mask) };
  if (option === "--or-mark") return { kind: "mark", value: Number(value), mask: Number(value) };
  if (option === "--xor-mark") return { kind: "mark", value: Number(value), mask: 0 };
  throw new Error(`not known to the tracer: ${text}`);
}

/** Splits a line into words, which are separated by blanks; a comment with blanks is quoted. */
function splitWords(text: string): readonly string[] {
  // Most rules have no quotes, and a node may have a hundred thousand rules.
  if (!text.includes('"')) return text.split(/ +/);
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

/**
 * Parses the output of iptables-save. `trace` then follows packets through the result. Throws for a line that it does not
 * know. Built-in chains that are not mentioned have no rules.
 */
export function parseRuleset(text: string): Ruleset {
  const tables = new Map<string, Map<string, Rule[]>>();
  let chains = new Map<string, Rule[]>();
  for (const line of text.split("\n")) {
    const [word = ""] = line.split(" ", 1);
    if (line === "" || line.startsWith("#") || line === "COMMIT") continue;
    if (word.startsWith("*")) {
      chains = tables.get(word.slice(1)) ?? new Map();
      tables.set(word.slice(1), chains);
    } else if (word.startsWith(":")) chains.set(word.slice(1), policyRules(line));
    else if (word === "-A") addRule(chains, line);
    else throw new Error(`not known to the tracer: ${line}`);
  }
  return tables;
}

/** Returns the policy of a chain as its last rule; none for ACCEPT. */
function policyRules(line: string): Rule[] {
  const isDrop = line.split(" ")[1] === "DROP";
  return isDrop ? [{ matches: [], target: { kind: "drop" }, isPolicy: true, text: "policy DROP" }] : [];
}

function addRule(chains: Map<string, Rule[]>, line: string): void {
  const [, chain = "", text = ""] = /^-A (\S+) (.*)$/.exec(line) ?? [];
  const rules = chains.get(chain) ?? [];
  chains.set(chain, rules);
  rules.splice(rules.at(-1)?.isPolicy === true ? -1 : rules.length, 0, parseRule(text));
}
