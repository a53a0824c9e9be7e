import type { Family } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Candidate } from "./choose-endpoints.ts";

/** One use that a Service could make of an endpoint: a family and a port of it. */
export interface PortEndpoint extends Candidate {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  readonly family: Family;
  /** Undefined for an endpoint that names no ports. */
  readonly port: EndpointPort | undefined;
  readonly group: PortGroup;
}

/** *Shape:* family, port name and protocol: what endpoints are chosen among. */
export type PortGroup = string;

/** An endpoint with what of it can be used. */
export interface MergedEndpoint {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  /** Its place among all, from 0. */
  readonly index: number;
  /** By family and port; undefined where another endpoint with the same address and port is taken in its place. */
  readonly portEndpoints: readonly (PortEndpoint | undefined)[];
}

/** The slices of a Service as one. */
export interface MergedSlices {
  /** In the order of the slices. */
  readonly endpoints: readonly MergedEndpoint[];
  readonly groups: ReadonlyMap<PortGroup, readonly PortEndpoint[]>;
}

/**
 * Takes the slices of a Service apart into facets and puts those together that answer for the same service port in the
 * same family; an endpoint that two slices name for the same address and port is taken once.
 *
 * Of two that name the same, the one that does not terminate wins, as in kube-proxy (`endpointslicecache.go:247`): the
 * address of a pod that is going may belong to the next pod already, which answers or does not. Then the one that is
 * ready wins, then the one that serves, then the first by slice name, where kube-proxy takes any: a pod that moves
 * between slices is in both for a moment.
 *
 * Pure; O(endpoints × ports).
 */
export function mergeSlices(slices: readonly EndpointSlice[]): MergedSlices {
  const groups = new Map<PortGroup, Map<string, Claim>>();
  const endpoints: MergedEndpoint[] = [];
  const names: GroupNames = { v4: new Map(), v6: new Map() };
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      const portEndpoints: (PortEndpoint | undefined)[] = portEndpointsOf(endpoint, slice, names);
      for (const [index, portEndpoint] of portEndpoints.entries())
        if (portEndpoint !== undefined) take({ portEndpoint, portEndpoints, index }, groups);
      endpoints.push({ endpoint, slice, index: endpoints.length, portEndpoints });
    }
  }
  const facetsByGroup = [...groups].map(
    ([group, claims]) => [group, [...claims.values()].map(({ portEndpoint }) => portEndpoint)] as const,
  );
  return { endpoints, groups: new Map(facetsByGroup) };
}

/** What endpoints are chosen among; see {@link mergeSlices}. */
export function groupPortEndpoints(slices: readonly EndpointSlice[]): ReadonlyMap<PortGroup, readonly PortEndpoint[]> {
  return mergeSlices(slices).groups;
}

export function portGroup(family: Family, port: EndpointPort | undefined): PortGroup {
  return port === undefined ? family : `${family} ${port.protocol ?? ""} ${port.name}`;
}

/** A facet and where its endpoint has it. */
interface Claim {
  readonly portEndpoint: PortEndpoint;
  readonly portEndpoints: (PortEndpoint | undefined)[];
  readonly index: number;
}

/** The names of groups by port: the endpoints of a slice share their ports, and so the names. */
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
  // Not flatMap, which leaves room for 16 more: there is a list for each endpoint.
  return ofFamily("v4").concat(ofFamily("v6"));
}

const noPort = [undefined] as const;

/** Puts a facet into its group; of two with the same address and port, one loses its place. */
function take(claim: Claim, groups: Map<PortGroup, Map<string, Claim>>): void {
  const { portEndpoint } = claim;
  const claims = groups.get(portEndpoint.group) ?? new Map<string, Claim>();
  groups.set(portEndpoint.group, claims);
  // Only the first address of an endpoint is ever used, as in kube-proxy.
  const key = `${portEndpoint.endpoint.addresses[portEndpoint.family][0]} ${portEndpoint.port?.port ?? ""}`;
  const other = claims.get(key);
  const loser = other !== undefined && rank(portEndpoint.endpoint) <= rank(other.portEndpoint.endpoint) ? claim : other;
  if (loser !== claim) claims.set(key, claim);
  if (loser !== undefined) loser.portEndpoints[loser.index] = undefined;
}

function rank({ conditions }: Endpoint): number {
  return (conditions.terminating ? 0 : 4) + (conditions.ready ? 2 : 0) + (conditions.serving ? 1 : 0);
}
