/** A rule of iptables, as `iptables-save` prints it. */
export interface Rule {
  readonly matches: readonly Match[];
  /** The one address that it is for; undefined if it is for several. Also in `matches`; here it makes tracing fast. */
  readonly onlyTo: string | undefined;
  /** "" for a rule without a target. */
  readonly target: string;
  /** `--to-destination` of DNAT; "" for other targets. */
  readonly destination: string;
}

/** One condition, e.g. `! -s 10.0.0.0/8`. */
export interface Match {
  readonly name: string;
  readonly value: string;
  readonly isNegated: boolean;
}

/** *Shape:* table, slash, chain, e.g. "nat/KUBE-SERVICES". */
export type Chains = ReadonlyMap<string, readonly Rule[]>;

/** Options that take no value. */
const flags = new Set(["--rcheck", "--reap", "--rsource", "--set", "--random-fully"]);

/** Options that say nothing of which packets match, or only belong to a target. */
const ignored = new Set(["-m", "--comment", "--reject-with", "--mask", "--name", "--mode", "--set-xmark"]);

/** Reads what `iptables-save` prints. Errors: a line that is none of its. */
export function parseRules(saved: string): Chains {
  const chains = new Map<string, Rule[]>();
  let table = "";
  for (const line of saved.split("\n")) {
    if (line === "" || line === "COMMIT" || line.startsWith("#")) continue;
    if (line.startsWith("*")) table = line.slice(1);
    else if (line.startsWith(":")) chains.set(`${table}/${line.slice(1).split(" ")[0]}`, []);
    else {
      const [append, chain = "", ...words] = splitWords(line);
      const rules = chains.get(`${table}/${chain}`);
      if (append !== "-A" || rules === undefined) throw new Error(`no rule of ${table}: ${line}`);
      rules.push(parseRule(words));
    }
  }
  return chains;
}

function parseRule(words: readonly string[]): Rule {
  const matches: Match[] = [];
  let target = "";
  let destination = "";
  for (let index = 0; index < words.length; index++) {
    const isNegated = words[index] === "!";
    if (isNegated) index += 1;
    const name = words[index] ?? "";
    if (!name.startsWith("-")) throw new Error(`no option: ${name} in ${words.join(" ")}`);
    const value = flags.has(name) ? "" : (words[++index] ?? "");
    if (name === "-j") target = value;
    else if (name === "--to-destination") destination = value;
    else if (!ignored.has(name)) matches.push({ name, value, isNegated });
  }
  const to = matches.find(({ name, isNegated }) => name === "-d" && !isNegated)?.value;
  const onlyTo = /^([\d.]+\/32|[^/]+\/128)$/.exec(to ?? "")?.[1]?.split("/")[0];
  return { matches, onlyTo, target, destination };
}

/** Words as a shell would see them; a comment stands in quotes. */
function splitWords(line: string): readonly string[] {
  return (line.match(/"(?:[^"\\]|\\.)*"|\S+/g) ?? []).map((word) => word.replace(/^"(.*)"$/, "$1"));
}
