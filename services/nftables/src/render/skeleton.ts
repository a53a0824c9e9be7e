import type { Family } from "@kpng/model/address.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { type Field, type FrontendKind, firstEndpointId, packed, setLayouts, sharedSets } from "../layout/elements.ts";
import { type ChainAddition, type TableId, writeMaskRule, writePickRule } from "../netlink/transaction.ts";

/**
 * Name of a chain that marks our tables. A table without this chain either is not ours or has sets that this version
 * does not expect. The number must change with the types of the sets and the meaning of their elements, because a start
 * keeps the elements that it finds.
 */
export const layoutChain = "kpng_layout_1";

/**
 * Name of one of the chains in {@link renderHooks}, which one transaction installs. If it is missing, no packet reaches
 * the rules and sets of a table.
 */
export const natHook = "nat_prerouting";

/** The rules that do not depend on Services, as nft commands. */
export interface Frame {
  readonly skeleton: string;
  /** Commands for the base chains. */
  readonly hooks: string;
}

/** Settings that the fixed rules of one table depend on. */
interface FrameOptions {
  readonly node: NodePlan;
  /** Name of the table; letters, digits, dashes and underscores. */
  readonly table: string;
  /** The bit of the packet mark that requests masquerading. Range 0–31; kube-proxy's default is 14. */
  readonly masqueradeBit: number;
}

/** Renders the rules that do not depend on Services. */
export function renderFrame(options: FrameOptions): Frame {
  return {
    skeleton: renderSkeleton(options),
    hooks: renderHooks({ family: options.node.family, name: options.table }),
  };
}

/** A chain of the table, with the rules that it must have. */
export interface Chain {
  readonly name: string;
  /** Hook at which packets enter a base chain; undefined for other chains. */
  readonly hook?: string | undefined;
  readonly rules: readonly string[];
}

/**
 * Renders the fixed part of a table as nft commands: sets, maps, and the chains that every table has, whatever its
 * Services are. The commands keep the elements of existing sets and maps, but replace the rules of the chains.
 *
 * Services only add elements to the sets; a change to a Service changes no rule in this file.
 *
 * No packet reaches the chains before {@link renderHooks} is installed, so the sets can be filled in several
 * transactions.
 */
function renderSkeleton(options: FrameOptions): string {
  const { node, table } = options;
  const ip = ipOf(node.family);
  return lines([
    `add table ${ip} ${table}`,
    ...renderSets(node.family).map((set) => set.replace(/^(map|set) /, `add $1 ${ip} ${table} `)),
    ...renderChains(ip, table, fixedChains(options)),
  ]);
}

/**
 * Renders the base chains through which packets reach the skeleton. `NftTable` installs them last.
 *
 * Source ranges are checked before DNAT (priority -100), by the address to which the packet was sent. Refused and
 * dropped frontends are checked after it: with policy Local, pods and the node may have endpoints where outside clients
 * have none, and packets that got an endpoint no longer have the frontend's address. Only the output hook needs a later
 * priority for this (-90): packets reach input and forward after prerouting.
 */
export function renderHooks({ family, name: table }: TableId): string {
  const ip = ipOf(family);
  const isNew = "ct state new jump";
  const firewall = twice(`ct state new ${frontendKey(ip)} vmap @firewall`);
  const base = (name: string, hook: string, ...rules: readonly string[]): Chain => ({ name, hook, rules });
  return lines(
    renderChains(ip, table, [
      base("firewall_prerouting", "type filter hook prerouting priority -110", ...firewall),
      base("firewall_output", "type filter hook output priority -110", ...firewall),
      base("filter_input", "type filter hook input priority -110", `${isNew} check_nodeports`, `${isNew} check`),
      base("filter_forward", "type filter hook forward priority -110", `${isNew} check`, `${isNew} check_cluster_ips`),
      base("filter_output", "type filter hook output priority -90", `${isNew} check`, `${isNew} check_cluster_ips`),
      base(natHook, "type nat hook prerouting priority -100", "jump services"),
      base("nat_output", "type nat hook output priority -100", "jump services"),
      base("nat_postrouting", "type nat hook postrouting priority 100", "jump masquerade_marked"),
    ]),
  );
}

/** The name of the chain that picks one of `count` endpoints. */
export function pickChain(count: number): string {
  return `pick_${count}`;
}

/**
 * Returns the chain that picks one of several endpoints of the set whose id is in the packet's priority, as a step of a
 * transaction.
 */
export function pickChainAddition(family: Family, name: string): ChainAddition {
  return {
    kind: "chain",
    chain: name,
    rules: [
      (writer) => writeMaskRule(writer, packed.idMask),
      (writer) => writePickRule(writer, family, countOfPick(name) ?? 0, "slots"),
      // A concurrent transaction may have removed the slot after this packet read the count, or may be replacing it.
      // Slot 0 is the last one to be removed, so the second attempt finds it.
      (writer) => writePickRule(writer, family, 1, "slots"),
    ],
  };
}

/** The name of the chain that picks the id of one of `count` endpoints with affinity. */
export function stickyPickChain(count: number): string {
  return `sticky_pick_${count}`;
}

/** Returns the number of endpoints among which the pick chain with this name chooses; undefined for other chains. */
export function countOfPick(name: string): number | undefined {
  const count = /^(?:sticky_)?pick_(\d+)$/.exec(name)?.[1];
  return count === undefined ? undefined : Number(count);
}

/**
 * Renders pick chains as nft commands. A chain for affinity replaces the set id in the packet's priority with the id of
 * an endpoint. The commands of other pick chains are never executed: {@link pickChainAddition} installs these chains.
 */
export function renderPicks({ family, name: table }: TableId, names: Iterable<string>): string {
  const ip = ipOf(family);
  const slot = (modulus: number): string => `meta priority . numgen random mod ${modulus}`;
  const dnat = (modulus: number): string =>
    `meta l4proto { tcp, udp, sctp } dnat ${ip} addr . port to ${slot(modulus)} map @slots`;
  const sticky = (modulus: number): string => `meta priority set ${slot(modulus)} map @sticky_slots`;
  const chains = Array.from(names, (name): Chain => {
    const count = countOfPick(name) ?? 0;
    const rules = isStickyPick(name)
      ? [sticky(count), `meta priority < ${firstEndpointId} ${sticky(1)}`]
      : [`meta priority set meta priority and ${packed.idMask}`, dnat(count), dnat(1)];
    return { name, rules };
  });
  return lines(renderChains(ip, table, chains));
}

/** Whether a pick chain is one for affinity. */
export function isStickyPick(name: string): boolean {
  return name.startsWith("sticky_");
}

/**
 * Returns the definitions of the sets and maps that all Services share.
 *
 * They use `typeof`: a set that nft 1.1.2 or newer declares by `type` crashes an older nft that reads it.
 * The exception is a map whose keys and values both have several fields. `sticky_addresses` is one, with the id of the
 * endpoint twice as its key, because nft refuses a `dnat` to the values of a map that was declared by `typeof`.
 */
function renderSets(family: Family): readonly string[] {
  const ip = ipOf(family);
  const expressions: Readonly<Record<Field, string>> = {
    address: `${ip} daddr`,
    protocol: "meta l4proto",
    port: "th dport",
    number: "meta priority",
    index: "numgen random mod 65536",
  };
  const typeOf = (fields: readonly Field[]): string => fields.map((field) => expressions[field]).join(" . ");
  return sharedSets.map((name) => {
    if (name === "sticky_addresses")
      return `map ${name} { type classid . classid : ${family === "v4" ? "ipv4_addr" : "ipv6_addr"} . inet_service; }`;
    const { key, data, value } = setLayouts[name];
    const type = name === "hairpin" ? `${ip} saddr . ${ip} daddr` : typeOf(key);
    if (data === "none") return `set ${name} { typeof ${type}; }`;
    return `map ${name} { typeof ${type} : ${value === undefined ? "verdict" : typeOf(value)}; }`;
  });
}

function fixedChains({ node, masqueradeBit }: FrameOptions): readonly Chain[] {
  const ip = ipOf(node.family);
  const frontend = frontendKey(ip);
  const bit = `0x${(2 ** masqueradeBit).toString(16)}`;
  const nodePorts = nodePortMatches(node);
  return [
    { name: layoutChain, rules: [] },
    { name: "mark_masquerade", rules: [`meta mark set meta mark or ${bit}`] },
    { name: "pick", rules: [`meta priority and ${packed.countMask} vmap @picks`] },
    { name: "sticky", rules: [`meta priority and ${packed.idMask} vmap @sticky_sets`] },
    ...balanceChains(node, "frontends", frontend),
    ...balanceChains(node, "nodeports", nodePortKey),
    {
      name: "services",
      rules: [
        ...twice(`meta priority set ${frontend} map @frontends goto balance_frontends`),
        ...nodePorts.flatMap((match) =>
          twice(`${match} meta priority set ${nodePortKey} map @nodeports goto balance_nodeports`),
        ),
      ],
    },
    { name: "check", rules: [`${frontend} @refused reject`, `${frontend} @dropped drop`] },
    {
      name: "check_nodeports",
      rules: nodePorts.flatMap((match) => [
        `${match} ${nodePortKey} @refused_nodeports reject`,
        `${match} ${nodePortKey} @dropped_nodeports drop`,
      ]),
    },
    {
      // As in kube-proxy's nftables mode, unknown ports of cluster IPs are refused, and unallocated addresses dropped.
      name: "check_cluster_ips",
      rules: [`${ip} daddr @cluster_ips reject`, ...node.serviceCIDRs.map((cidr) => `${ip} daddr ${cidr} drop`)],
    },
    {
      name: "masquerade_marked",
      rules: [
        // The rules keep the packed set in the packet's priority. It is reset here because packets from the node itself
        // and packets forwarded over IPv6 would otherwise leave with it, and queueing disciplines read the priority.
        `ct status dnat meta priority >= ${packed.firstId} meta priority set 0`,
        `meta mark and ${bit} != 0 meta mark set meta mark xor ${bit} masquerade fully-random`,
        `ct status dnat ${ip} saddr . ${ip} daddr @hairpin masquerade fully-random`,
      ],
    },
  ];
}

/**
 * Renders the chains that decide whether to masquerade and, with policy Local, which endpoint set to use. `key` is the
 * key expression for looking up the frontend.
 */
function balanceChains(node: NodePlan, frontends: "frontends" | "nodeports", key: string): readonly Chain[] {
  const pod = podMatch(node);
  const from = (kind: FrontendKind): string => `meta priority >= ${packed.firstOfKind(kind)}`;
  const notYet = (kind: FrontendKind): string => `meta priority < ${packed.firstOfKind(kind)}`;
  return [
    {
      name: `local_${frontends}`,
      rules: [
        ...(pod === undefined ? [] : [`${pod.is} goto pick`]),
        "fib saddr type local jump mark_masquerade",
        "fib saddr type local goto pick",
        ...twice(`meta priority set ${key} map @local_${frontends} goto pick`),
      ],
    },
    {
      name: `balance_${frontends}`,
      rules: [
        `${from("local")} goto local_${frontends}`,
        `${from("masquerade")} jump mark_masquerade`,
        `${from("masqueradeUnlessPod")} ${notYet("masquerade")} ${pod?.isNot ?? ""} jump mark_masquerade`,
        "goto pick",
      ],
    },
  ];
}

/**
 * Returns a rule twice, so that its lookup is repeated if it finds nothing. While a transaction is replacing an
 * element, a lookup that began before the transaction may see neither the old element nor the new one; a lookup that
 * begins afterwards sees the new one. Linux 6.17 repeats such lookups itself (docs/design/nft.md). Lookups in sets, and
 * in maps where no key ever gets another value (`picks`, `sticky_sets`), need no repetition.
 */
function twice(rule: string): readonly string[] {
  return [rule, rule];
}

/**
 * Renders chains. All of them are declared and flushed before any rule is added, because rules may jump to chains that
 * come later.
 */
export function renderChains(ip: string, table: string, chains: readonly Chain[]): readonly string[] {
  return [
    ...chains.flatMap(({ name, hook }) => [
      `add chain ${ip} ${table} ${name}${hook === undefined ? "" : ` { ${hook}; policy accept; }`}`,
      `flush chain ${ip} ${table} ${name}`,
    ]),
    ...chains.flatMap(({ name, rules }) => rules.map((rule) => `add rule ${ip} ${table} ${name} ${rule}`)),
  ];
}

/** Returns the expression that identifies a frontend with an address. */
export function frontendKey(ip: string): string {
  return `${ip} daddr . meta l4proto . th dport`;
}

/** Expression that identifies a node port. */
const nodePortKey = "meta l4proto . th dport";

/** Returns the matches for packets that pods send, and for all others; undefined if pods cannot be recognized. */
export function podMatch({
  podTraffic,
  family,
}: Pick<NodePlan, "podTraffic" | "family">): { readonly is: string; readonly isNot: string } | undefined {
  const ip = ipOf(family);
  switch (podTraffic?.kind) {
    case undefined:
      return undefined;
    case "source":
      return { is: `${ip} saddr ${podTraffic.cidr}`, isNot: `${ip} saddr != ${podTraffic.cidr}` };
    case "interface":
      return { is: `iifname "${podTraffic.name}"`, isNot: `iifname != "${podTraffic.name}"` };
    case "interfacePrefix":
      return { is: `iifname "${podTraffic.prefix}*"`, isNot: `iifname != "${podTraffic.prefix}*"` };
  }
}

/** Returns the matches for packets to addresses that serve node ports, which loopback addresses never do. */
function nodePortMatches({ nodePortAddresses, family }: NodePlan): readonly string[] {
  const ip = ipOf(family);
  const loopback = loopbackOf(family);
  if (nodePortAddresses === "all") return [`${ip} daddr != ${loopback} fib daddr type local`];
  const served = nodePortAddresses.filter((address) => !isLoopback(address));
  return served.length === 0 ? [] : [`${ip} daddr { ${served.join(", ")} }`];
}

function loopbackOf(family: Family): string {
  return family === "v4" ? "127.0.0.0/8" : "::1";
}

/** The name of the nftables table family. */
export function ipOf(family: Family): "ip" | "ip6" {
  return family === "v4" ? "ip" : "ip6";
}

/** Ends each command with a newline. */
export function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join("");
}
