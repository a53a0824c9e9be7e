import { BlockList } from "node:net";
import { type AddressSet, type Family, parseAddress, parseCidr } from "@kpng/model/address.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import { repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";

/** Which of a node's addresses serve node ports, as it was asked for. */
export type NodePortAddressRule =
  | { readonly kind: "cidrs"; readonly cidrs: readonly string[] }
  /** The first address of each family that the cluster has for the Node. */
  | { readonly kind: "primary" };

/** The same for one family of one node. */
export type NodePortAddresses =
  /** Every local address, also one that is added later. */
  { readonly kind: "all" } | { readonly kind: "listed"; readonly addresses: readonly string[] };

/** kube-proxy's `--nodeport-addresses`. */
export const nodePortAddressesOption: OptionSpec = repeatable(
  "--nodeport-addresses <cidrs>",
  "serve node ports on local addresses in these CIDRs, or on the Node's own with `primary` (default: all)",
);

/**
 * Parses the values of `--nodeport-addresses`: CIDRs of both families, or `primary` alone. None means all.
 *
 * Errors: BAD_OPTION.
 */
export function parseNodePortAddresses(texts: readonly string[]): NodePortAddressRule {
  if (texts.includes("primary")) {
    if (texts.length === 1) return { kind: "primary" };
    throw new ProcessError("BAD_OPTION", "--nodeport-addresses primary stands alone: it goes with no CIDR");
  }
  const cidrs = texts.map((text) => {
    const parsed = parseCidr(text);
    if (parsed !== undefined) return parsed.cidr;
    throw new ProcessError(
      "BAD_OPTION",
      `--nodeport-addresses "${text}" is no CIDR: write 10.0.0.0/8, fd00::/8 or primary`,
    );
  });
  return { kind: "cidrs", cidrs };
}

/** What a node has to choose from. */
export interface NodeAddresses {
  /** Of its interfaces. */
  readonly local: AddressSet;
  /** ViewNode.addresses: internal ones first. */
  readonly ofNode: readonly string[];
}

/**
 * Resolves a rule for one family: a family without a CIDR gets all addresses, even if the other has one; a CIDR of length
 * 0 means all. `primary` is the Node's first address of the family unless that is a loopback address; none means all.
 *
 * *Source:* kube-proxy `util/nodeport_addresses.go`, `cmd/kube-proxy/app/server.go`.
 *
 * Pure. Local addresses change while a node runs: ask again at each sync.
 */
export function resolveNodePortAddresses(
  rule: NodePortAddressRule,
  family: Family,
  { local, ofNode }: NodeAddresses,
): NodePortAddresses {
  const cidrs = cidrsOf(rule, family, ofNode);
  if (cidrs.length === 0 || cidrs.some((cidr) => cidr.endsWith("/0"))) return { kind: "all" };
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [network = "", length] = cidr.split("/");
    list.addSubnet(network, Number(length), typeOf(family));
  }
  return { kind: "listed", addresses: local[family].filter((address) => list.check(address, typeOf(family))) };
}

/** True if node ports are served on `address`, which is canonical. */
export function servesNodePorts(address: string, chosen: NodePortAddresses, local: readonly string[]): boolean {
  return (chosen.kind === "all" ? local : chosen.addresses).includes(address);
}

function cidrsOf(rule: NodePortAddressRule, family: Family, ofNode: readonly string[]): readonly string[] {
  if (rule.kind === "cidrs") return rule.cidrs.filter((cidr) => cidr.includes(":") === (family === "v6"));
  const first = ofNode.map(parseAddress).find((parsed) => parsed?.family === family);
  if (first === undefined || isLoopback(first.address)) return [];
  return [`${first.address}/${family === "v4" ? 32 : 128}`];
}

function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.");
}

function typeOf(family: Family): "ipv4" | "ipv6" {
  return family === "v4" ? "ipv4" : "ipv6";
}
