import { type AddressSet, type Family, parseAddress } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";

/**
 * The administrator's choice of the addresses that serve node ports. `parseNodePortAddresses` of backend-kit reads it
 * from the option `--nodeport-addresses`.
 */
export type NodePortAddressRule =
  /** Local addresses in these CIDRs, of both families; none means all. */
  | { readonly kind: "cidrs"; readonly cidrs: readonly string[] }
  /** The first address of each family that the cluster has for the Node. */
  | { readonly kind: "primary" };

/** The addresses of one family of one node that the choice leads to. */
export type NodePortAddresses =
  /** Every local address, also one that is added later. */
  { readonly kind: "all" } | { readonly kind: "listed"; readonly addresses: readonly string[] };

/** The addresses that a node has. */
export interface NodeAddresses {
  /** Addresses of its interfaces. */
  readonly local: AddressSet;
  /** ViewNode.addresses: internal addresses first. Undefined if the Node is unknown. */
  readonly ofNode: readonly string[] | undefined;
}

/**
 * Returns the addresses of one family that a rule selects on a node. `planNode` calls it for rules, and
 * `listenAddresses` of backend-kit for health checks, so that both agree. A family without a CIDR gets all addresses,
 * even if the other has one; a CIDR of length 0 means all. `primary` is the Node's first address of the family, and all
 * if there is none or it is a loopback address. While the Node is unknown, `primary` is no address: all would open node
 * ports that the administrator closed.
 *
 * *Source:* kube-proxy `util/nodeport_addresses.go`, `cmd/kube-proxy/app/server.go`.
 *
 * Pure. Local addresses change while a node runs: resolve again at each sync.
 */
export function resolveNodePortAddresses(
  rule: NodePortAddressRule,
  family: Family,
  { local, ofNode }: NodeAddresses,
): NodePortAddresses {
  if (rule.kind === "primary" && ofNode === undefined) return { kind: "listed", addresses: [] };
  const cidrs = cidrsOf(rule, family, ofNode ?? []);
  if (cidrs.length === 0 || cidrs.some((cidr) => cidr.endsWith("/0"))) return { kind: "all" };
  return { kind: "listed", addresses: local[family].filter((address) => cidrs.some((cidr) => isIn(address, cidr))) };
}

/** True if node ports are served on `address`, which is canonical. `AfterCommit` of backend-kit calls it for flows. */
export function servesNodePorts(address: string, chosen: NodePortAddresses, local: readonly string[]): boolean {
  return (chosen.kind === "all" ? local : chosen.addresses).includes(address);
}

function cidrsOf(rule: NodePortAddressRule, family: Family, ofNode: readonly string[]): readonly string[] {
  if (rule.kind === "cidrs") return rule.cidrs.filter((cidr) => cidr.includes(":") === (family === "v6"));
  const first = ofNode.map(parseAddress).find((parsed) => parsed?.family === family);
  if (first === undefined || isLoopback(first.address)) return [];
  return [`${first.address}/${family === "v4" ? 32 : 128}`];
}

/** True for 127.0.0.0/8 and ::1. The address is canonical. */
export function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.");
}
