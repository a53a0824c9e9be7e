import type { Family } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Candidate } from "./choose-endpoints.ts";

/**
 * Merges the slices of a Service: groups its port endpoints by service port and family, and removes duplicates of the
 * same address and port. It is the first step of every view of a Service.
 *
 * Among duplicates, an endpoint that does not terminate wins, as in kube-proxy (`endpointslicecache.go:247`): the
 * address of a terminating pod may already belong to the next pod. Then a ready endpoint wins, then a serving one, then
 * the first by slice name, where kube-proxy takes any. A pod that moves between slices is in both for a moment.
 *
 * Pure; O(endpoints × ports).
 *
 * Called by `ServiceState` for streams, by `makeServiceView`, and by `explainService`. Separate, because all three need
 * it.
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
  const portEndpointsByGroup = [...groups].map(
    ([group, claims]) => [group, [...claims.values()].map(({ portEndpoint }) => portEndpoint)] as const,
  );
  return { endpoints, groups: new Map(portEndpointsByGroup) };
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

/** Identifies the port endpoints of a Service among which a node chooses. *Shape:* family, protocol and port name. */
export type PortGroup = string;

/** An endpoint and its port endpoints. */
export interface MergedEndpoint {
  readonly endpoint: Endpoint;
  readonly slice: EndpointSlice;
  /** Index among all endpoints of the Service, from 0. */
  readonly index: number;
  /** By family and port; undefined if another endpoint with the same address and port replaces it. */
  readonly portEndpoints: readonly (PortEndpoint | undefined)[];
}

/** The merged slices of a Service. */
export interface MergedSlices {
  /** In the order of the slices. */
  readonly endpoints: readonly MergedEndpoint[];
  readonly groups: ReadonlyMap<PortGroup, readonly PortEndpoint[]>;
}

/** Returns the group of a port; a port without a protocol has a group of its own for each name. */
export function portGroup(family: Family, port: EndpointPort | undefined): PortGroup {
  return port === undefined ? family : `${family} ${port.protocol ?? ""} ${port.name}`;
}

/** A port endpoint that claims an address and port, and its position in the list of its endpoint. */
interface Claim {
  readonly portEndpoint: PortEndpoint;
  readonly portEndpoints: (PortEndpoint | undefined)[];
  readonly index: number;
}

/** Cached group names by port: the endpoints of a slice share their port objects. */
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
  // Not flatMap, whose result has spare capacity for 16 elements: there is a list for each endpoint.
  return ofFamily("v4").concat(ofFamily("v6"));
}

const noPort = [undefined] as const;

/** Adds a port endpoint to its group. Of two with the same address and port, removes one. */
function take(claim: Claim, groups: Map<PortGroup, Map<string, Claim>>): void {
  const { portEndpoint } = claim;
  const claims = groups.get(portEndpoint.group) ?? new Map<string, Claim>();
  groups.set(portEndpoint.group, claims);
  // Only the first address of an endpoint is used, as in kube-proxy.
  const key = `${portEndpoint.endpoint.addresses[portEndpoint.family][0]} ${portEndpoint.port?.port ?? ""}`;
  const other = claims.get(key);
  const loser = other !== undefined && rank(portEndpoint.endpoint) <= rank(other.portEndpoint.endpoint) ? claim : other;
  if (loser !== claim) claims.set(key, claim);
  if (loser !== undefined) loser.portEndpoints[loser.index] = undefined;
}

function rank({ conditions }: Endpoint): number {
  return (conditions.terminating ? 0 : 4) + (conditions.ready ? 2 : 0) + (conditions.serving ? 1 : 0);
}
