import type { Family } from "@kpng/model/address.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { EndpointUse, FamilyFlags, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Service, ServicePort } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { type Choice, type ChoosingNode, chooseEndpoints, isOnNode } from "./choose-endpoints.ts";
import { groupPortEndpoints, mergeSlices, type PortEndpoint, type PortGroup } from "./merge-slices.ts";
import { neededSets, useInNoSet } from "./port-endpoint-use.ts";
import { viewEndpoints } from "./view-endpoints.ts";

/**
 * Returns what a node is told of one Service.
 *
 * Eligibility is decided per service port and family, as in kube-proxy: a pod that lacks a named port, or an IPv6 slice
 * that lags behind, must not decide for the others. An endpoint that is used in the same way for all of its ports and
 * families stays one item; otherwise each way becomes an item with the ports and addresses that are used that way. Of
 * two items with the same key, as a state file can give them, the later one holds. `isTold` leaves items out before that.
 *
 * This is the definition; streams make the same from what nodes have in common and what is their own (`class-choice.ts`).
 *
 * Pure; O(endpoints of the Service × ports).
 */
export function makeServiceView(
  service: Service,
  slices: readonly EndpointSlice[],
  node: ChoosingNode,
  isTold: (endpoint: ViewEndpoint) => boolean = () => true,
): ServiceView {
  const merged = mergeSlices(slices);
  const uses = new Map<PortEndpoint, EndpointUse | undefined>();
  const usableGroups = new Set<PortGroup>();
  for (const { group, portEndpoints, choice, useOf } of choosePortEndpoints(service, slices, node, merged.groups)) {
    if (choice.hasEndpoints) usableGroups.add(group);
    for (const portEndpoint of portEndpoints) uses.set(portEndpoint, useOf(portEndpoint));
  }
  const endpoints = new Map<string, ViewEndpoint>();
  for (const one of merged.endpoints) {
    const ownUses = one.portEndpoints.map((portEndpoint) => portEndpoint && uses.get(portEndpoint));
    for (const item of viewEndpoints(service, one, ownUses, isOnNode(one.endpoint, node))) {
      if (isTold(item)) endpoints.set(item.key, item);
    }
  }
  return {
    service,
    portHasEndpoints: portFlags(service, usableGroups),
    endpoints: [...endpoints.values()].sort((a, b) => compareText(a.key, b.key)),
  };
}

/** What a node does with the facets that answer for one service port in one family. */
export interface ChosenPortEndpoints {
  readonly group: PortGroup;
  readonly portEndpoints: readonly PortEndpoint[];
  readonly choice: Choice<PortEndpoint>;
  /** How the node uses a facet; undefined if it is not told of it. */
  useOf(portEndpoint: PortEndpoint): EndpointUse | undefined;
}

/** Chooses among the facets of a Service, as the view of a node and whoever explains it need it. Pure. */
export function* choosePortEndpoints(
  service: Service,
  slices: readonly EndpointSlice[],
  node: ChoosingNode,
  groups: ReadonlyMap<PortGroup, readonly PortEndpoint[]> = groupPortEndpoints(slices),
): Iterable<ChosenPortEndpoints> {
  const needed = neededSets(service);
  for (const [group, portEndpoints] of groups) {
    const choice = chooseEndpoints(portEndpoints, node, needed);
    const useOf = (portEndpoint: PortEndpoint): EndpointUse | undefined =>
      choice.uses.get(portEndpoint) ?? useInNoSet(service, portEndpoint);
    yield { group, portEndpoints, choice, useOf };
  }
}

/** For each port of a Service, whether any of the groups that some node could use answers for it. */
export function portFlags(service: Service, usable: ReadonlySet<PortGroup>): readonly FamilyFlags[] {
  return service.ports.map((port) => ({
    v4: hasEndpoints(usable, "v4", port),
    v6: hasEndpoints(usable, "v6", port),
  }));
}

function hasEndpoints(usable: ReadonlySet<PortGroup>, family: Family, port: ServicePort): boolean {
  return (
    usable.has(`${family} ${port.protocol} ${port.name}`) ||
    usable.has(`${family}  ${port.name}`) ||
    // An endpoint that names no ports answers on the target port, which only an unnamed service port leads to.
    (port.name === "" && usable.has(family))
  );
}
