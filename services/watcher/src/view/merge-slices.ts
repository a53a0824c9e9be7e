import { type Family, families } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Candidate } from "./choose-endpoints.ts";

/** One use that a Service could make of an endpoint: a family and a port of it. */
export interface Facet extends Candidate {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  readonly family: Family;
  /** Undefined for an endpoint that names no ports. */
  readonly port: EndpointPort | undefined;
}

/** *Shape:* family, port name and protocol: what endpoints are chosen among. */
export type FacetGroup = string;

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
export function groupFacets(slices: readonly EndpointSlice[]): ReadonlyMap<FacetGroup, readonly Facet[]> {
  const groups = new Map<FacetGroup, Map<string, Facet>>();
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      for (const facet of facetsOf(endpoint, slice)) addFacet(groups, facet);
    }
  }
  return new Map([...groups].map(([group, facets]) => [group, [...facets.values()]]));
}

export function facetGroup(family: Family, port: EndpointPort | undefined): FacetGroup {
  return port === undefined ? family : `${family} ${port.protocol ?? ""} ${port.name}`;
}

function* facetsOf(endpoint: Endpoint, slice: EndpointSlice): Iterable<Facet> {
  const { conditions, nodeName, hintedZones, hintedNodes } = endpoint;
  const ports = endpoint.ports.length === 0 ? [undefined] : endpoint.ports;
  for (const family of families) {
    if (endpoint.addresses[family].length === 0) continue;
    for (const port of ports) {
      yield { conditions, nodeName, hintedZones, hintedNodes, endpoint, slice, family, port };
    }
  }
}

function addFacet(groups: Map<FacetGroup, Map<string, Facet>>, facet: Facet): void {
  const group = facetGroup(facet.family, facet.port);
  const facets = groups.get(group) ?? new Map<string, Facet>();
  groups.set(group, facets);
  // Only the first address of an endpoint is ever used, as in kube-proxy.
  const key = `${facet.endpoint.addresses[facet.family][0]} ${facet.port?.port ?? ""}`;
  const other = facets.get(key);
  if (other === undefined || rank(facet.endpoint) > rank(other.endpoint)) facets.set(key, facet);
}

function rank({ conditions }: Endpoint): number {
  return (conditions.terminating ? 0 : 4) + (conditions.ready ? 2 : 0) + (conditions.serving ? 1 : 0);
}
