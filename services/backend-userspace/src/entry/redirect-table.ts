import type { Family } from "@kpng/model/address.ts";
import type { EntryFrontend, EntryState } from "./entry.ts";

/** Elements of the table, in nft's notation: those of frontends with an address, and those of node ports. */
export interface Elements {
  readonly frontends: ReadonlyMap<string, string>;
  readonly nodePorts: ReadonlyMap<string, string>;
  readonly verdicts: ReadonlyMap<string, string>;
  readonly nodePortVerdicts: ReadonlyMap<string, string>;
  /** Keys alone. */
  readonly localPorts: ReadonlyMap<string, string>;
  readonly nodePortAddresses: ReadonlyMap<string, string>;
}

/** Names of the maps and sets by the fields of {@link Elements}. */
export const setNames = {
  frontends: "frontends",
  nodePorts: "nodeports",
  verdicts: "verdicts",
  nodePortVerdicts: "nodeport_verdicts",
  localPorts: "local_ports",
  nodePortAddresses: "nodeport_addresses",
} as const satisfies Record<keyof Elements, string>;

/** Names the table of a family in a command. *Shape:* `ip kpng-user`. */
export const tableOf = (family: Family, name: string): string => `${family === "v4" ? "ip" : "ip6"} ${name}`;

/**
 * Returns the commands that create the table of one family with its chains, without elements. They delete an older
 * table first, in the same transaction. Pure.
 *
 * - `pre` and `out` come before the redirection and refuse or drop what has no endpoint.
 * - `nat_pre` and `nat_out` redirect: a map from frontend to an address of the node with a local port.
 * - `input` refuses clients that address a local port directly.
 */
export function skeleton(family: Family, name: string, nodePorts: "all" | "listed"): string {
  const ip = family === "v4" ? "ip" : "ip6";
  const address = family === "v4" ? "ipv4_addr" : "ipv6_addr";
  const table = tableOf(family, name);
  const loopback = family === "v4" ? "127.0.0.0/8" : "::1";
  const isNodePortAddress =
    nodePorts === "all" ? `fib daddr type local ${ip} daddr != ${loopback}` : `${ip} daddr @nodeport_addresses`;
  const key = `${ip} daddr . meta l4proto . th dport`;
  const check = [
    `ct state new ${key} vmap @verdicts`,
    `ct state new ${isNodePortAddress} meta l4proto . th dport vmap @nodeport_verdicts`,
  ];
  const nat = [
    `meta l4proto { tcp, udp } dnat ${ip} addr . port to ${key} map @frontends`,
    `meta l4proto { tcp, udp } ${isNodePortAddress} dnat ${ip} addr . port to meta l4proto . th dport map @nodeports`,
  ];
  const chain = (chainName: string, hook: string, rules: readonly string[]): readonly string[] => [
    `  chain ${chainName} {`,
    ...(hook === "" ? [] : [`    ${hook}`]),
    ...rules.map((rule) => `    ${rule}`),
    "  }",
  ];
  return [
    `table ${table} {}`,
    `delete table ${table}`,
    `table ${table} {`,
    ...chain("refuse", "", ["meta l4proto tcp reject with tcp reset", "reject"]),
    `  map frontends { type ${address} . inet_proto . inet_service : ${address} . inet_service; }`,
    `  map nodeports { type inet_proto . inet_service : ${address} . inet_service; }`,
    `  map verdicts { type ${address} . inet_proto . inet_service : verdict; }`,
    "  map nodeport_verdicts { type inet_proto . inet_service : verdict; }",
    `  set local_ports { type ${address} . inet_proto . inet_service; }`,
    `  set nodeport_addresses { type ${address}; }`,
    ...chain("pre", "type filter hook prerouting priority -110; policy accept;", check),
    ...chain("out", "type filter hook output priority -110; policy accept;", check),
    ...chain("nat_pre", "type nat hook prerouting priority -100; policy accept;", nat),
    ...chain("nat_out", "type nat hook output priority -100; policy accept;", nat),
    ...chain("input", "type filter hook input priority -10; policy accept;", [
      `ct state new ct status & dnat == 0 ${key} @local_ports goto refuse`,
    ]),
    "}\n",
  ].join("\n");
}

/** The elements of one frontend. */
export interface FrontendElements {
  readonly set: "frontends" | "nodePorts" | "verdicts" | "nodePortVerdicts";
  readonly key: string;
  readonly value: string;
  /** Key of the local port; undefined if it has none. */
  readonly localPort: string | undefined;
}

/** Returns the element for a frontend in a state; undefined if its packets are left alone. Pure. */
export function elementsOf({ frontend }: EntryFrontend, state: EntryState): FrontendElements | undefined {
  const { address, protocol, port } = frontend;
  const name = protocol.toLowerCase();
  const key = address === undefined ? `${name} . ${port}` : `${address} . ${name} . ${port}`;
  switch (state.kind) {
    case "none":
      return undefined;
    case "refuse":
    case "drop": {
      const value = state.kind === "refuse" ? "goto refuse" : "drop";
      return { set: address === undefined ? "nodePortVerdicts" : "verdicts", key, value, localPort: undefined };
    }
    case "open": {
      const { at } = state;
      const value = `${at.address} . ${at.port}`;
      const localPort = `${at.address} . ${name} . ${at.port}`;
      return { set: address === undefined ? "nodePorts" : "frontends", key, value, localPort };
    }
  }
}
