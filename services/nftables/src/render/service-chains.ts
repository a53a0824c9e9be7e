import { createHash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { AllowedSources, EndpointSetName, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import { firstEndpointId, packed } from "../layout/packed-set.ts";
import { ipOf, notRemembered } from "./skeleton.ts";

/**
 * A chain that some Services need, and the set or map that belongs to it. `ServiceElements` renders the chains of each
 * Service with the functions of this file; `elements/service-chains.ts` remembers which are installed.
 */
export interface ServiceChain {
  /** Name of the chain; equal names have equal rules unless `rules` differ in a later version of the same Service. */
  readonly name: string;
  /** A set or map that only this kind of chain uses, as nft declares it: `map clients_… { … }`. */
  readonly set?: DeclaredSet | undefined;
  readonly rules: readonly string[];
}

/** A set or map of a chain. */
export interface DeclaredSet {
  readonly name: string;
  readonly declaration: string;
  /** Its whole contents as nft writes them; undefined if packets change them. */
  readonly elements?: readonly string[] | undefined;
}

/** Pattern of the names of chains that drop packets by their source; their sets have the same names. */
export const rangesPattern = /^ranges_[0-9a-f]{16}$/;

/**
 * Renders the chain that keeps a client with its endpoint.
 *
 * A client whose endpoint is remembered and still has an id in `sticky_endpoints` gets it again; an endpoint that is
 * removed loses its id in the same transaction, so no new connection goes there. All other clients get a random
 * endpoint, which is remembered. If the map of clients is full, `update` fails and its rule ends: the connection goes
 * to a random endpoint that is not remembered, and is counted. The sets for policy Cluster and policy Local have
 * separate maps, because a client may have an endpoint in one that the other does not contain.
 */
export function renderStickyChain(
  family: Family,
  port: ServicePortPlan,
  set: EndpointSetName,
  id: number,
  affinitySeconds: number,
  maxClients: number,
): ServiceChain {
  const ip = ipOf(family);
  const hash = setHash(port, set);
  const clients = `clients_${hash}`;
  const client = `${ip} saddr timeout ${affinitySeconds}s : meta priority`;
  const goThere = `meta l4proto { tcp, udp, sctp } dnat ${ip} addr . port to meta priority map @sticky_endpoints`;
  return {
    name: `sticky_${hash}`,
    set: {
      name: clients,
      declaration: `map ${clients} { type ${addressType(family)} : classid; flags dynamic,timeout; size ${maxClients}; }`,
    },
    rules: [
      `meta priority set ${ip} saddr map @${clients} update @${clients} { ${client} }`,
      `meta priority >= ${firstEndpointId} ${goThere}`,
      `meta priority set ${id * (packed.countMask + 1)}`,
      "meta priority vmap @sticky_counts",
      // Again if it found nothing, as in the skeleton; an endpoint's id is not in the map.
      "meta priority vmap @sticky_counts",
      // Only the id of an endpoint may be remembered.
      `meta priority < ${firstEndpointId} return`,
      // `update` renews the time of an element but keeps its old value.
      `delete @${clients} { ${ip} saddr : meta priority }`,
      `update @${clients} { ${client} } ${goThere}`,
      // The map is full.
      `counter name ${notRemembered} ${goThere}`,
    ],
  };
}

/** Renders the chain that drops packets from all but the allowed sources. Equal sources share a chain. */
export function renderRangesChain(family: Family, { ranges, ownAddresses }: AllowedSources): ServiceChain {
  const ip = ipOf(family);
  const elements = [...new Set([...ranges, ...ownAddresses])].sort();
  const name = `ranges_${hash(elements.join(" "))}`;
  if (elements.length === 0) return { name, rules: ["drop"] };
  const type = `type ${addressType(family)}; flags interval; auto-merge;`;
  return {
    name,
    set: { name, declaration: `set ${name} { ${type} }`, elements },
    rules: [`${ip} saddr != @${name} drop`],
  };
}

function addressType(family: Family): string {
  return family === "v4" ? "ipv4_addr" : "ipv6_addr";
}

function setHash({ name, protocol }: ServicePortPlan, set: EndpointSetName): string {
  return hash(`${name} ${protocol} ${set}`);
}

/** Returns 16 hexadecimal digits. The probability that two of 100 000 names agree is about 1 in 4 billion. */
function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}
