import type { Family } from "@kpng/model/address.ts";
import { compareText, getOrMake } from "@kpng/model/collections.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Candidate } from "./choose-endpoints.ts";

/**
 * Merges the slices of a Service, which must be sorted by name: groups its port endpoints by service port and family,
 * and removes duplicates with the same address and port, such as those of a pod that moves between slices.
 *
 * Among duplicates, an endpoint that does not terminate wins, as in kube-proxy (`endpointslicecache.go:247`): the
 * address of a terminating pod may already belong to the next pod. After that, a ready endpoint wins, then a serving
 * one, and then the first one by slice name and content (kube-proxy takes an arbitrary one).
 *
 * Pure. *Cost:* O(endpoints × ports). If `before`, the result for earlier slices of the same Service, is given, slices
 * that are the same objects cost only one look-up per address.
 */
export function mergeSlices(slices: readonly EndpointSlice[], before?: MergedSlices): MergedSlices {
  // A part that has lost port endpoints is made anew, because it may get them back.
  const reusable = before?.parts.filter((part) => !part.hasLosers) ?? [];
  const oldParts = new Map(reusable.map((part) => [part.slice, part]));
  const parts = slices.map((slice) => oldParts.get(slice) ?? makePart(slice));
  const newParts = parts.filter((part) => !oldParts.has(part.slice));
  // If only a few parts are new, comparing the addresses of the new parts is cheaper than searching all parts; both
  // methods give the same result.
  const isQuick = reusable.length === before?.parts.length && newParts.length * 8 < parts.length;
  const losers = isQuick && newParts.every((part) => hasUniqueAddresses(part, parts)) ? noLosers : findLosers(parts);
  const merged = losers.size === 0 ? parts : parts.map((part) => withoutLosers(part, losers));
  const groups = new Map<PortGroup, PortEndpoint[]>();
  for (const { endpoints } of merged) {
    for (const { portEndpoints } of endpoints) {
      for (const one of portEndpoints) if (one !== undefined) getOrMake(groups, one.group, () => []).push(one);
    }
  }
  return { parts: merged, endpoints: merged.flatMap(({ endpoints }) => endpoints), groups };
}

/** One endpoint for one port in one family: the unit in which endpoints are chosen. */
export interface PortEndpoint extends Candidate {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  readonly family: Family;
  /** Undefined for an endpoint without ports. */
  readonly port: EndpointPort | undefined;
  readonly group: PortGroup;
}

/**
 * Identifies a set of port endpoints of a Service from which a node chooses. *Shape:* family, protocol and port name,
 * `v4 TCP http`; `v4  http` without a protocol, and `v4` without a port.
 */
export type PortGroup = string;

export interface MergedEndpoint {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  /** Index in the endpoints of the slice. */
  readonly index: number;
  /** One element for each family and port; undefined if another endpoint with the same address and port replaces it. */
  readonly portEndpoints: readonly (PortEndpoint | undefined)[];
}

interface MergedPart {
  readonly slice: EndpointSlice;
  readonly endpoints: readonly MergedEndpoint[];
  /** True if an endpoint of another slice replaces a port endpoint of this slice. */
  readonly hasLosers: boolean;
  addresses?: ReadonlySet<string> | undefined;
}

export interface MergedSlices {
  /** One part for each slice. Two states of a Service share the parts of unchanged slices without losers. */
  readonly parts: readonly MergedPart[];
  readonly endpoints: readonly MergedEndpoint[];
  readonly groups: ReadonlyMap<PortGroup, readonly PortEndpoint[]>;
}

/** Returns the group of a port; ports without a protocol have a separate group for each name. */
function portGroup(family: Family, port: EndpointPort | undefined): PortGroup {
  return port === undefined ? family : `${family} ${port.protocol ?? ""} ${port.name}`;
}

function makePart(slice: EndpointSlice): MergedPart {
  const names: GroupNames = { v4: new Map(), v6: new Map() };
  const endpoints = slice.endpoints.map((endpoint, index) => {
    return { endpoint, slice, index, portEndpoints: portEndpointsOf(endpoint, slice, names) };
  });
  return { slice, endpoints, hasLosers: false };
}

/** Cached group names by port object, because the endpoints of a slice share their port objects. */
type GroupNames = Readonly<Record<Family, Map<EndpointPort | undefined, PortGroup>>>;

function portEndpointsOf(endpoint: Endpoint, slice: EndpointSlice, names: GroupNames): PortEndpoint[] {
  const { conditions, nodeName, hintedZones, hintedNodes } = endpoint;
  const ports = endpoint.ports.length === 0 ? noPort : endpoint.ports;
  const ofFamily = (family: Family): PortEndpoint[] => {
    if (endpoint.addresses[family].length === 0) return [];
    return ports.map((port) => {
      const group = getOrMake(names[family], port, () => portGroup(family, port));
      return { conditions, nodeName, hintedZones, hintedNodes, endpoint, slice, family, port, group };
    });
  };
  // The result of flatMap would have spare capacity for 16 elements, in a list for each endpoint.
  return ofFamily("v4").concat(ofFamily("v6"));
}

const noPort = [undefined] as const;

const noLosers: ReadonlySet<PortEndpoint> = new Set();

/**
 * True if each address of a part occurs only once in all parts, so that none of the part's port endpoints loses or
 * wins.
 */
function hasUniqueAddresses(part: MergedPart, parts: readonly MergedPart[]): boolean {
  const addresses = addressesOf(part);
  const count = part.slice.endpoints.reduce((sum, { addresses }) => sum + addresses.v4.length + addresses.v6.length, 0);
  return (
    addresses.size === count && parts.every((other) => other === part || addresses.isDisjointFrom(addressesOf(other)))
  );
}

/**
 * Returns the addresses of a part, and caches them in the part, because parts are compared whenever another slice
 * changes.
 */
function addressesOf(part: MergedPart): ReadonlySet<string> {
  part.addresses ??= new Set(part.slice.endpoints.flatMap(({ addresses }) => [...addresses.v4, ...addresses.v6]));
  return part.addresses;
}

/** For each group, address and port, returns all port endpoints except the best one. */
function findLosers(parts: readonly MergedPart[]): ReadonlySet<PortEndpoint> {
  const losers = new Set<PortEndpoint>();
  const claims = new Map<PortGroup, Map<number | undefined, Map<string, PortEndpoint>>>();
  for (const { endpoints } of parts) {
    let last: PortEndpoint | undefined;
    let byAddress = new Map<string, PortEndpoint>();
    for (const { portEndpoints } of endpoints) {
      for (const one of portEndpoints) {
        if (one === undefined) continue;
        if (one.group !== last?.group || one.port !== last.port) {
          const byPort = getOrMake(claims, one.group, () => new Map<number | undefined, Map<string, PortEndpoint>>());
          byAddress = getOrMake(byPort, one.port?.port, () => new Map<string, PortEndpoint>());
        }
        last = one;
        // Only the first address of an endpoint is used, as in kube-proxy.
        const address = one.endpoint.addresses[one.family][0] ?? "";
        const other = byAddress.get(address);
        const isBetter = other === undefined || isBetterThan(one, other);
        if (isBetter) byAddress.set(address, one);
        if (other !== undefined) losers.add(isBetter ? other : one);
      }
    }
  }
  return losers;
}

function withoutLosers(part: MergedPart, losers: ReadonlySet<PortEndpoint>): MergedPart {
  const isLoser = (one: PortEndpoint | undefined): boolean => one !== undefined && losers.has(one);
  if (!part.endpoints.some(({ portEndpoints }) => portEndpoints.some(isLoser))) return part;
  const endpoints = part.endpoints.map((merged) => ({
    ...merged,
    portEndpoints: merged.portEndpoints.map((one) => (isLoser(one) ? undefined : one)),
  }));
  return { ...part, endpoints, hasLosers: true };
}

/** Endpoints of one slice are compared by content, because a relay does not know their order. */
function isBetterThan(one: PortEndpoint, other: PortEndpoint): boolean {
  const [rankOne, rankOther] = [rank(one.endpoint), rank(other.endpoint)];
  // Of equally good endpoints in two slices, the earlier one stays, because its slice comes first by name.
  if (rankOne !== rankOther || one.slice !== other.slice) return rankOne > rankOther;
  return compareText(contentOf(one), contentOf(other)) < 0;
}

function contentOf({ endpoint, port }: PortEndpoint): string {
  const { podName, hostname, nodeName, zone, hintedZones, hintedNodes, ports, addresses } = endpoint;
  const where = [podName, hostname, nodeName, zone, hintedZones, hintedNodes];
  return JSON.stringify([...where, port?.protocol, ports.length, addresses.v4.length, addresses.v6.length]);
}

function rank({ conditions }: Endpoint): number {
  return (conditions.terminating ? 0 : 4) + (conditions.ready ? 2 : 0) + (conditions.serving ? 1 : 0);
}
