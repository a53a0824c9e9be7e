import type { TwoNodes } from "./two-nodes.ts";

/**
 * Returns everything on n1 that a service proxy may have installed: rules, ipsets, IPVS, addresses, routes, and what is
 * in the BPF file system at `bpf`.
 */
export async function describeNode(world: TwoNodes, bpf: string): Promise<readonly string[]> {
  const read = (...command: readonly string[]) => linesOf(world, command);
  const found = [
    ...(await rulesOf(world)),
    ...(await read("ipset", "list", "-n")).map((line) => `ipset ${line}`),
    ...(await read("ipvsadm", "-S", "-n")).map((line) => `ipvs ${line}`),
    ...(await read("ip", "-o", "link")).map((line) => /^\d+: ([^:@]+)/.exec(line)?.[1] ?? ""),
    ...(await read("ip", "-o", "address")).map((line) => line.split(/\s+/).slice(1, 4).join(" ")),
    ...(await read("ip", "rule")),
    ...(await read("ip", "-6", "rule")).map((line) => `IPv6 ${line}`),
    ...(await read("ip", "route", "show", "table", "all")),
    ...(await read("find", bpf, "-mindepth", "1")),
  ];
  // The kernel adds link-local addresses and their routes some time after a link is up.
  return [...new Set(found)].filter((line) => !/\b(?:fe80|ff00)::/.test(line));
}

/** What only a tool shows, and a file that exists if the kernel has it. */
const tools = [
  { tool: "nft", shows: "rules of nftables", file: "/" },
  { tool: "ipset", shows: "ipsets", file: "/sys/module/ip_set" },
  { tool: "ipvsadm", shows: "virtual servers", file: "/proc/net/ip_vs" },
];

/**
 * Returns why {@link describeNode} may miss something, or undefined if it sees everything. The answer may change when a
 * proxy starts, because that loads modules.
 */
export async function whyNotSeen({ laboratory }: Pick<TwoNodes, "laboratory">): Promise<string | undefined> {
  for (const { tool, shows, file } of tools) {
    const isHidden = ["sh", "-c", 'test -e "$1" && ! command -v "$0"', tool, file];
    const { exitCode } = await laboratory.tryRun("n1", isHidden);
    if (exitCode === 0) return `${tool} is not installed, so ${shows} cannot be seen`;
  }
  return undefined;
}

/**
 * Returns the rules of n1, one a line, without counters, comments, and what iptables-nft leaves in any case: its tables
 * with empty built-in chains.
 */
export async function rulesOf(world: TwoNodes): Promise<readonly string[]> {
  const iptables = [...(await linesOf(world, ["iptables-save"])), ...(await linesOf(world, ["ip6tables-save"]))]
    .map((line) => line.replace(/ \[\d+:\d+\]$/, "").replace(/^\[\d+:\d+\] /, ""))
    .filter((line) => /^:(?!\S+ ACCEPT$)|^-A/.test(line));
  const isOfIptables = (line: string): boolean =>
    /^table ip6? (?:filter|nat|mangle|raw|security) \{$|^\tchain [A-Z]+ \{$|^\t\ttype .* policy accept;$|^\t?\}$/.test(
      line,
    );
  const nftables = await linesOf(world, ["nft", "--stateless", "list", "ruleset"]);
  return [...iptables, ...nftables.filter((line) => !line.startsWith("#") && !isOfIptables(line))];
}

/** Returns what a command prints on n1; nothing if it fails, as `nft` does if the kernel has no nftables. */
async function linesOf(world: TwoNodes, command: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await world.laboratory.tryRun("n1", command);
  return stdout.split("\n").filter((line) => line.trim() !== "");
}
