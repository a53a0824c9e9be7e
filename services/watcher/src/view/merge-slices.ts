import type { Family } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Candidate } from "./choose-endpoints.ts";

/** One use that a Service could make of an endpoint: a family and a port of it. */
export interface Facet extends Candidate {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  readonly family: Family;
  /** Undefined for an endpoint that names no ports. */
  readonly port: EndpointPort | undefined;
  readonly group: FacetGroup;
}

/** *Shape:* family, port name and protocol: what endpoints are chosen among. */
export type FacetGroup = string;

/** An endpoint with what of it can be used. */
export interface MergedEndpoint {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  /** Its place among all, from 0. */
  readonly index: number;
  /** By family and port; undefined where another endpoint with the same address and port is taken in its place. */
  readonly facets: readonly (Facet | undefined)[];
}

/** The slices of a Service as one. */
export interface MergedSlices {
  /** In the order of the slices. */
  readonly endpoints: readonly MergedEndpoint[];
  readonly groups: ReadonlyMap<FacetGroup, readonly Facet[]>;
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
  const groups = new Map<FacetGroup, Map<string, Place>>();
  const endpoints: MergedEndpoint[] = [];
  const names: GroupNames = { v4: new Map(), v6: new Map() };
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      const facets: (Facet | undefined)[] = facetsOf(endpoint, slice, names);
      for (const [index, facet] of facets.entries()) if (facet !== undefined) take({ facet, facets, index }, groups);
      endpoints.push({ endpoint, slice, index: endpoints.length, facets });
    }
  }
  const facetsByGroup = [...groups].map(
    ([group, places]) => [group, [...places.values()].map(({ facet }) => facet)] as const,
  );
  return { endpoints, groups: new Map(facetsByGroup) };
}

/** What endpoints are chosen among; see {@link mergeSlices}. */
export function groupFacets(slices: readonly EndpointSlice[]): ReadonlyMap<FacetGroup, readonly Facet[]> {
  return mergeSlices(slices).groups;
}

export function facetGroup(family: Family, port: EndpointPort | undefined): FacetGroup {
  return port === undefined ? family : `${family} ${port.protocol ?? ""} ${port.name}`;
}

/** A facet and where its endpoint has it. */
interface Place {
  readonly facet: Facet;
  readonly facets: (Facet | undefined)[];
  readonly index: number;
}

/** The names of groups by port: the endpoints of a slice share their ports, and so the names. */
type GroupNames = Readonly<Record<Family, Map<EndpointPort | undefined, FacetGroup>>>;

function facetsOf(endpoint: Endpoint, slice: EndpointSlice, names: GroupNames): Facet[] {
  const { conditions, nodeName, hintedZones, hintedNodes } = endpoint;
  const ports = endpoint.ports.length === 0 ? noPort : endpoint.ports;
  const ofFamily = (family: Family): Facet[] => {
    if (endpoint.addresses[family].length === 0) return [];
    return ports.map((port) => {
      const group = getOrMake(names[family], port, () => facetGroup(family, port));
      return { conditions, nodeName, hintedZones, hintedNodes, endpoint, slice, family, port, group };
    });
  };
  // Not flatMap, which leaves room for 16 more: there is a list for each endpoint.
  return ofFamily("v4").concat(ofFamily("v6"));
}

const noPort = [undefined] as const;

/** Puts a facet into its group; of two with the same address and port, one loses its place. */
function take(place: Place, groups: Map<FacetGroup, Map<string, Place>>): void {
  const { facet } = place;
  const places = groups.get(facet.group) ?? new Map<string, Place>();
  groups.set(facet.group, places);
  // Only the first address of an endpoint is ever used, as in kube-proxy.
  const key = `${facet.endpoint.addresses[facet.family][0]} ${facet.port?.port ?? ""}`;
  const other = places.get(key);
  const loser = other !== undefined && rank(facet.endpoint) <= rank(other.facet.endpoint) ? place : other;
  if (loser !== place) places.set(key, place);
  if (loser !== undefined) loser.facets[loser.index] = undefined;
}

function rank({ conditions }: Endpoint): number {
  return (conditions.terminating ? 0 : 4) + (conditions.ready ? 2 : 0) + (conditions.serving ? 1 : 0);
}
