import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { IptablesVariant } from "./laboratory/legacy-tools.ts";
import { comparableTable } from "./rules.ts";

/** Random choices of a soak. */
export interface Choices {
  readonly below: (limit: number) => number;
  readonly pick: <Item>(...items: readonly Item[]) => Item;
}

/** A backend under a soak: how its rules are read, and how another program edits the tables. */
export interface SoakSubject {
  /** Words that select the backend: `to-iptables --iptables-variant nft`. */
  readonly sink: readonly string[];
  /** Shell command of the other program before the edits. */
  readonly prepare: string;
  /** Returns a shell command for each kind of edit; one of them is run at a time. */
  readonly edits: (namespace: string, choices: Choices) => readonly (() => Promise<string>)[];
  /** Shell command after the edits: removes what would keep us from removing our own rules. */
  readonly finish: string;
  /** Returns our rules, comparable between namespaces. */
  readonly ownRules: (namespace: string) => Promise<readonly string[]>;
  /** Returns what must be left of the rules of the other program, or a text that says what is missing. */
  readonly othersRules: (namespace: string) => Promise<string>;
}

/** A table of another program with nft's own rules, which comes and goes. */
const addTheirTable =
  "nft 'add table ip theirs; add chain ip theirs out { type nat hook output priority -110; }; add rule ip theirs out ip daddr 192.0.2.1 dnat to 192.0.2.2'";
const deleteTheirTable = "nft delete table ip theirs";

const addNative = 'nft add rule ip nat POSTROUTING oifname "eth9" masquerade';
const deleteNative =
  "nft -a list chain ip nat POSTROUTING | sed -n 's/.*eth9.* handle //p' | xargs -r -I % nft delete rule ip nat POSTROUTING handle %";

/** Returns kpng-iptables with one variant of iptables. */
export function soakIptables(laboratory: Laboratory, variant: IptablesVariant): SoakSubject {
  const savedIn = async (namespace: string): Promise<readonly string[]> =>
    (await laboratory.run(namespace, [`iptables-${variant}-save`])).split("\n");
  const tool = `iptables-${variant} -w 5`;
  const unreachable = `KPNG-SVC-${"A".repeat(16)}`;
  return {
    sink: ["to-iptables", "--iptables-variant", variant, "--iptables-sync-period", "1s"],
    prepare: `${tool} -A FORWARD -s 192.0.2.1 -m comment --comment theirs -j DROP; ${tool} -t nat -N THEIRS`,
    edits: (namespace, { below, pick }) => {
      const ownChain = async (): Promise<string> => {
        const chains = (await savedIn(namespace)).flatMap((line) => line.match(/^:(KPNG-\S+)/)?.[1] ?? []);
        return chains[below(chains.length)] ?? "KPNG-SERVICES";
      };
      return [
        async () => `${tool} -t nat -F ${await ownChain()}`,
        async () => `${tool} -t ${pick("nat", "filter")} -I ${await ownChain()} -j RETURN`,
        async () => `${tool} -t nat -D ${pick("PREROUTING", "OUTPUT", "POSTROUTING")} 1`,
        async () => `${tool} -D ${pick("INPUT", "OUTPUT")} 1`,
        async () => `${tool} -t nat -N ${unreachable}; ${tool} -t nat -A INPUT -j ${unreachable}`,
        async () => `${tool} -t nat -A THEIRS -j ${await ownChain()}`,
        async () => `${tool} -t nat -F THEIRS`,
        async () => `${tool} -t nat -F PREROUTING; ${tool} -t nat -X`,
        async () => `iptables-${variant}-save -t nat | grep -v ${await ownChain()} | iptables-${variant}-restore`,
        async () => addTheirTable,
        async () => deleteTheirTable,
        ...(variant === "nft" ? [async () => addNative, async () => deleteNative] : []),
      ];
    },
    finish: `${tool} -t nat -N THEIRS; ${tool} -t nat -F THEIRS; ${variant === "nft" ? deleteNative : "true"}`,
    ownRules: async (namespace) => ownIptablesRules(await savedIn(namespace)),
    othersRules: async (namespace) => {
      const kept = "-A FORWARD -s 192.0.2.1/32 -m comment --comment theirs -j DROP";
      return (await savedIn(namespace)).includes(kept) ? "kept" : `missing: ${kept}`;
    },
  };
}

const families = ["ip", "ip6"] as const;

/** Returns kpng-nft. */
export function soakNft(laboratory: Laboratory): SoakSubject {
  const listing = (namespace: string, family: (typeof families)[number]): Promise<string> =>
    laboratory.run(namespace, ["sh", "-c", `nft list table ${family} kpng 2>/dev/null || true`]);
  return {
    sink: ["to-nft", "--nftables-sync-period", "1s"],
    prepare:
      "nft 'add table ip kept; add chain ip kept passing { type filter hook forward priority 0; }; add rule ip kept passing ip saddr 192.0.2.1 drop'",
    edits: (namespace, { below, pick }) => {
      const one = async (kind: string, family: (typeof families)[number]): Promise<string> => {
        const names = [...(await listing(namespace, family)).matchAll(new RegExp(`^\t${kind} (\\S+) `, "gm"))];
        return names[below(names.length)]?.[1] ?? "none";
      };
      const inOwn = async (kind: string, words: (name: string) => string): Promise<string> => {
        const family = pick(...families);
        return words(`${family} kpng ${await one(kind, family)}`);
      };
      const saved = `/tmp/kpng-soak-${process.pid}.nft`;
      return [
        () => inOwn("map", (map) => `nft flush map ${map}`),
        () => inOwn("set", (set) => `nft flush set ${set}`),
        () => inOwn("chain", (chain) => `nft flush chain ${chain}`),
        () => inOwn("chain", (chain) => `nft insert rule ${chain} return`),
        () => inOwn("chain", (chain) => `nft add rule ${chain} counter`),
        async () => `nft delete table ${pick(...families)} kpng`,
        async () => `nft add element ip kpng refused '{ 10.96.${below(12)}.10 . tcp . 80 }'`,
        async () => "nft delete element ip kpng picks '{ 0:1 }'",
        async () => `nft add chain ip kpng theirs; nft add rule ip kpng theirs jump ${await one("chain", "ip")}`,
        async () => "nft flush chain ip kpng theirs",
        async () => `nft list table ip kpng >${saved}`,
        async () => `nft delete table ip kpng; nft -f ${saved}; rm -f ${saved}`,
        async () => addTheirTable,
        async () => deleteTheirTable,
        async () => "iptables-nft -w 5 -t nat -A POSTROUTING -o eth9 -j MASQUERADE",
      ];
    },
    finish: "nft flush chain ip kpng theirs; nft delete chain ip kpng theirs",
    ownRules: async (namespace) =>
      (await Promise.all(families.map((family) => listing(namespace, family)))).flatMap((text, at) =>
        comparableTable(text).map((line) => `${families[at]} ${line}`),
      ),
    othersRules: async (namespace) => {
      const kept = await laboratory.run(namespace, ["nft", "list", "table", "ip", "kept"]);
      return kept.includes("ip saddr 192.0.2.1 drop") ? "kept" : kept;
    },
  };
}

/**
 * Our chains, their rules and the jumps to them, each with its table, without the record of the view. Rules of a chain
 * stay in their order; tables and chains are sorted, because iptables-legacy prints tables as the kernel loaded them.
 */
function ownIptablesRules(saved: readonly string[]): readonly string[] {
  let table = "";
  const ours: { readonly chain: string; readonly line: string }[] = [];
  for (const line of saved) {
    if (line.startsWith("*")) table = line.slice(1);
    const name = /^(?::|-A )(\S+)/.exec(line)?.[1];
    if (name === undefined || !/^:KPNG-|^-A .*KPNG-/.test(line) || line.includes("KPNG-RECORD")) continue;
    ours.push({ chain: `${table} ${name}`, line: `${table} ${line.replace(/ \[\d+:\d+\]$/, "")}` });
  }
  return ours.sort((a, b) => compareText(a.chain, b.chain)).map(({ line }) => line);
}
