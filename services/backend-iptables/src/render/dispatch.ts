import { type Family, parseCidr } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import type { ChainNames } from "./chain-names.ts";
import { rule } from "./rule.ts";
import { type ChainId, chainId } from "./table.ts";

/**
 * A chain that contains rules of many Services: a top-level chain, or a bucket of one.
 *
 * The kernel compares a new connection with rules one after another. The rules of SERVICES, NODEPORTS and HAIRPIN are
 * therefore spread over buckets: the rules of 256 neighbouring addresses, or of 64 neighbouring ports of a protocol,
 * form a chain, and the top-level chain has one rule per bucket. With 5 000 Services × 2 ports in a /16 a connection
 * meets 296 rules instead of 10 000, and creating or deleting a Service rewrites about 40.
 *
 * `renderService` and `renderFrontends` choose the list of each rule with the functions of this file. `DesiredChains`
 * then joins the rules of all Services in a list, and creates and deletes buckets. Separate from all three, because
 * this file alone knows the sizes of buckets.
 */
export interface RuleList {
  readonly id: ChainId;
  /** The rule that leads to this list, and the list that contains it; undefined for a top-level chain. */
  readonly entry?: { readonly parent: ChainId; readonly rule: string } | undefined;
  /** Several Services may have the same rule in this list, which is then installed once. Default false. */
  readonly isDistinct?: boolean | undefined;
}

/** The bucket of a Service's address in nat SERVICES, or of an endpoint's in nat HAIRPIN. */
export function addressBucket(
  parent: "SERVICES" | "HAIRPIN",
  names: ChainNames,
  family: Family,
  address: string,
): RuleList {
  const cidr = parseCidr(`${address}/${family === "v4" ? 24 : 120}`)?.cidr ?? address;
  const bucket = names.addressBucket(parent, cidr.slice(0, cidr.indexOf("/")));
  return {
    id: chainId("nat", bucket),
    entry: { parent: chainId("nat", names.fixed(parent)), rule: rule(`-d ${cidr}`, `-j ${bucket}`) },
    // A pod may serve several Services.
    isDistinct: parent === "HAIRPIN",
  };
}

const portsPerBucket = 64;

/** The bucket of a node port in nat NODEPORTS. */
export function nodePortBucket(names: ChainNames, protocol: Protocol, port: number): RuleList {
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

/** A top-level chain without buckets. */
export function wholeList(id: ChainId): RuleList {
  return { id };
}
