import { hash } from "node:crypto";
import type { Protocol } from "@kpng/model/service.ts";

/** The longest chain name that the kernel accepts: XT_EXTENSION_MAXNAMELEN without the zero at its end. */
export const maxChainNameLength = 28;

/** A prefix longer than this leaves no room for a kind and 16 digits of a hash. */
export const maxPrefixLength = 8;

const defaultPrefix = "KPNG-";

/**
 * The purpose of a chain of a service port: SVC chooses among all endpoints, SVL among those of this node, EXT handles
 * packets to node ports and external addresses, FW checks the source ranges of a load-balancer IP.
 */
export type ServiceChainKind = "SVC" | "SVL" | "EXT" | "FW";

/**
 * Names of all chains of one instance. `makeProxy` in `backend.ts` creates the names from the prefix, with
 * `chainNames`; the renderers in this folder use them. They are in one file, because all of them follow one rule:
 *
 * Only an instance's own chains begin with its prefix, and no prefix is the beginning of another, because a prefix ends
 * in its only dash. An instance can therefore find its own chains and remove them.
 */
export interface ChainNames {
  readonly prefix: string;
  /** A fixed chain: `KPNG-SERVICES`. */
  fixed(name: FixedChain): string;
  /** The chains of a service port: `KPNG-SVC-XPGD46QRK7WJZT7O`; the hash is the one that kube-proxy uses. */
  ofServicePort(name: string, protocol: Protocol): (kind: ServiceChainKind) => string;
  /** The list of clients that stay with an endpoint: `KPNG-SEP-SXIVWICOYRO3J4NJ`. */
  clientList(servicePortName: string, protocol: Protocol, endpoint: string): string;
  /**
   * The chain with the rules of neighbouring addresses, called a bucket: `KPNG-IP-172.30.5.0` for addresses of
   * Services, `KPNG-HP-10.1.5.0` for those of endpoints.
   */
  addressBucket(parent: "SERVICES" | "HAIRPIN", network: string): string;
  /** The chain with the rules of 64 neighbouring node ports, named after the first of them: `KPNG-NP-TCP-30080`. */
  nodePortBucket(protocol: Protocol, firstPort: number): string;
}

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
  | "LOCALNET"
  | "RECORD";

/**
 * The prefix of the instance that serves `serviceProxyName`: `KPNG-` for the default one, else four letters and three
 * digits of a hash, so that instances with different names do not touch each other's chains.
 */
export function prefixOf(serviceProxyName: string): string {
  return serviceProxyName === "" ? defaultPrefix : `KPNG${digest(serviceProxyName).slice(0, 3)}-`;
}

/** Prefixes that are not allowed: with one, a cleanup would remove the chains of kube-proxy, Docker, CNI or flannel. */
const prefixesOfOthers: readonly string[] = ["KUBE-", "DOCKER-", "CNI-", "FLANNEL-"];

/** True for 1 to 7 capital letters or digits and a dash, unless chains of a well-known program begin like that. */
export function isChainPrefix(text: string): boolean {
  if (prefixesOfOthers.includes(text)) return false;
  return text.length <= maxPrefixLength && /^[A-Z][A-Z0-9]*-$/.test(text);
}

/** Returns the names of all chains of the instance with this prefix. */
export function chainNames(prefix: string): ChainNames {
  return {
    prefix,
    fixed: (name) => `${prefix}${name}`,
    ofServicePort: (name, protocol) => {
      const hashed = digest(name + protocol.toLowerCase());
      return (kind) => `${prefix}${kind}-${hashed}`;
    },
    clientList: (servicePortName, protocol, endpoint) =>
      `${prefix}SEP-${digest(servicePortName + protocol.toLowerCase() + endpoint)}`,
    addressBucket: (parent, network) =>
      `${prefix}${parent === "SERVICES" ? "IP" : "HP"}-${network.includes(":") ? digest(network) : network}`,
    nodePortBucket: (protocol, firstPort) => `${prefix}NP-${protocol}-${firstPort}`,
  };
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** The first 16 digits of the RFC 4648 base32 of a SHA-256. Source: kube-proxy `iptables/proxier.go`, portProtoHash. */
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
