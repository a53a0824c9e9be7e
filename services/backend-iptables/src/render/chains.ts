import { hash } from "node:crypto";
import { type Family, parseCidr } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { type ChainId, chainId, rule } from "./rule.ts";

/** The longest chain name that the kernel accepts: XT_EXTENSION_MAXNAMELEN without the terminating zero. */
export const maxChainNameLength = 28;

const defaultPrefix = "KPNG-";

/**
 * The purpose of a service port's chain: SVC chooses among all endpoints, SVL among those of this node, EXT handles
 * packets to node ports and external addresses, FW checks the source ranges of a load-balancer IP.
 */
type ServiceChainKind = "SVC" | "SVL" | "EXT" | "FW";

/** Chains that do not depend on the Services. */
export type FixedChain =
  | "SERVICES"
  | "NODEPORTS"
  | "MARK-MASQ"
  | "POSTROUTING"
  | "HAIRPIN"
  | "EXTERNAL-SERVICES"
  | "PROXY-FIREWALL"
  | "FORWARD"
  | "LOCALNET";

/**
 * Chains with the rules for whole addresses, in the order of the tables; see {@link wholeAddressList}. Unlike fixed
 * chains, they exist only if a Service needs them.
 */
export type WholeAddressChain = "WHOLE" | "WHOLE-SERVICES" | "WHOLE-EXTERNAL" | "WHOLE-FIREWALL";

/**
 * The prefix of the instance that serves `serviceProxyName`: `KPNG-` for the default instance, otherwise four letters
 * and three hash digits, so that instances with different names do not touch each other's chains. With more digits, the
 * names of Service chains would be longer than {@link maxChainNameLength}.
 */
export function prefixOf(serviceProxyName: string): string {
  return serviceProxyName === "" ? defaultPrefix : `KPNG${digest(serviceProxyName).slice(0, 3)}-`;
}

/**
 * The names of all chains of one instance.
 *
 * Only an instance's own chains begin with its prefix. No prefix is the beginning of another, because each prefix
 * contains one dash, at its end. An instance can therefore find its own chains and remove them.
 */
export class ChainNames {
  readonly prefix: string;

  constructor(prefix: string) {
    this.prefix = prefix;
  }

  /** A fixed chain: `KPNG-SERVICES`. */
  fixed(name: FixedChain | WholeAddressChain): string {
    return `${this.prefix}${name}`;
  }

  /**
   * Returns the chains of a service port, e.g. `KPNG-SVC-XPGD46QRK7WJZT7O` with the hash that kube-proxy uses. Without a
   * protocol, returns the chains of a Service's whole addresses.
   */
  ofServicePort(name: string, protocol: Protocol | undefined): (kind: ServiceChainKind) => string {
    const hashed = digest(name + protocolOrWhole(protocol));
    return (kind) => `${this.prefix}${kind}-${hashed}`;
  }

  /** The list of clients that keep their endpoint because of client affinity: `KPNG-SEP-SXIVWICOYRO3J4NJ`. */
  clientList(servicePortName: string, protocol: Protocol | undefined, endpoint: string): string {
    return `${this.prefix}SEP-${digest(servicePortName + protocolOrWhole(protocol) + endpoint)}`;
  }

  /**
   * The chain with the rules for neighbouring addresses, called a bucket: `KPNG-IP-172.30.5.0` for Service addresses,
   * `KPNG-HP-10.1.5.0` for endpoint addresses.
   */
  addressBucket(parent: "SERVICES" | "HAIRPIN", network: string): string {
    const kind = parent === "SERVICES" ? "IP" : "HP";
    return `${this.prefix}${kind}-${network.includes(":") ? digest(network) : network}`;
  }

  /** The chain with the rules for 64 neighbouring node ports, named after the first port: `KPNG-NP-TCP-30080`. */
  nodePortBucket(protocol: Protocol, firstPort: number): string {
    return `${this.prefix}NP-${protocol}-${firstPort}`;
  }
}

function protocolOrWhole(protocol: Protocol | undefined): string {
  return protocol?.toLowerCase() ?? "whole";
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/**
 * Returns the first 16 digits of a SHA-256 in base32 (RFC 4648). Source: kube-proxy `iptables/proxier.go`,
 * portProtoHash.
 */
function digest(text: string): string {
  const bytes = hash("sha256", text, "buffer");
  let digits = "";
  for (let half = 0; half < 2; half++) {
    let value = bytes.readUIntBE(half * 5, 5);
    let part = "";
    for (let digit = 0; digit < 8; digit++) {
      part = `${alphabet[value % 32]}${part}`;
      value = Math.floor(value / 32);
    }
    digits += part;
  }
  return digits;
}

/**
 * A chain that contains rules for many Services: a top-level chain, or one of its buckets.
 *
 * The kernel compares a new connection with rules one after another. The rules of SERVICES, NODEPORTS and HAIRPIN are
 * therefore distributed among buckets: the rules for 256 neighbouring addresses, or for 64 neighbouring ports of a
 * protocol, form a chain, and the top-level chain has one rule per bucket. With 5 000 Services × 2 ports in a /16, a
 * connection meets 296 rules instead of 10 000, and creating or deleting a Service rewrites about 40 rules.
 *
 * `DesiredChains` joins the rules of all Services in a list, and creates and deletes buckets.
 */
export interface SharedList {
  readonly id: ChainId;
  /** The rule that leads to this list, and the list that contains it; undefined for a top-level chain. */
  readonly entry?:
    | {
        readonly parent: ChainId;
        readonly rule: string;
        /** True if the rule comes after those of Services and other buckets. Default false. */
        readonly isLast?: boolean | undefined;
      }
    | undefined;
  /** True if a rule that several Services have in this list is installed only once. Default false. */
  readonly isDistinct?: boolean | undefined;
}

/** Returns the bucket for a Service address in nat SERVICES, or for an endpoint address in nat HAIRPIN. */
export function addressBucket(
  parent: "SERVICES" | "HAIRPIN",
  names: ChainNames,
  family: Family,
  address: string,
): SharedList {
  const cidr = parseCidr(`${address}/${family === "v4" ? 24 : 120}`)?.cidr ?? address;
  const bucket = names.addressBucket(parent, cidr.slice(0, cidr.indexOf("/")));
  return {
    id: chainId("nat", bucket),
    entry: { parent: chainId("nat", names.fixed(parent)), rule: rule(`-d ${cidr}`, `-j ${bucket}`) },
    // A pod may serve several Services, which then have the same hairpin rule.
    isDistinct: parent === "HAIRPIN",
  };
}

const portsPerBucket = 64;

/** Returns the bucket for a node port in nat NODEPORTS. */
export function nodePortBucket(names: ChainNames, protocol: Protocol, port: number): SharedList {
  const first = port - (port % portsPerBucket);
  const bucket = names.nodePortBucket(protocol, first);
  const text = protocol.toLowerCase();
  return {
    id: chainId("nat", bucket),
    entry: {
      parent: chainId("nat", names.fixed("NODEPORTS")),
      rule: rule(`-p ${text}`, `-m ${text} --dport ${first}:${first + portsPerBucket - 1}`, `-j ${bucket}`),
    },
  };
}

/** The top-level chain that leads to each of the lists for whole addresses, after its rules for ports. */
export const wholeAddressParents: Readonly<Record<WholeAddressChain, FixedChain>> = {
  WHOLE: "SERVICES",
  "WHOLE-SERVICES": "SERVICES",
  "WHOLE-EXTERNAL": "EXTERNAL-SERVICES",
  "WHOLE-FIREWALL": "PROXY-FIREWALL",
};

/**
 * Returns the list with the rules for whole addresses in one of the top-level chains. Its entry comes after the rules of
 * ports, which are more specific, and excludes the node's own addresses.
 */
export function wholeAddressList(name: WholeAddressChain, names: ChainNames): SharedList {
  const table = name === "WHOLE" ? "nat" : "filter";
  const chain = names.fixed(name);
  return {
    id: chainId(table, chain),
    entry: {
      parent: chainId(table, names.fixed(wholeAddressParents[name])),
      rule: rule("-m addrtype ! --dst-type LOCAL", `-j ${chain}`),
      isLast: true,
    },
  };
}

/** The inputs, other than the Services, on which the rules of one family depend. Equal inputs give equal rules. */
export interface RenderOptions {
  readonly node: NodePlan;
  readonly names: ChainNames;
  /** The mark of packets that must be masqueraded; a single bit. */
  readonly masqueradeMark: number;
  /**
   * True if the kernel does not treat late packets as INVALID (nf_conntrack_tcp_be_liberal). In that case, no rule that
   * drops INVALID packets is installed.
   */
  readonly isConntrackLiberal: boolean;
}

/** Settings of the rules of one instance, for both families. */
export type RuleSettings = Pick<RenderOptions, "names" | "masqueradeMark">;
