import type { Family } from "@kpng/model/address.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { EndpointUse, FamilyFlags, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Service, ServicePort } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { type Choice, type ChoosingNode, chooseEndpoints, isOnNode } from "./choose-endpoints.ts";
import { type MergedSlices, mergeSlices, type PortEndpoint, type PortGroup } from "./merge-slices.ts";
import { neededSets, useInNoSet } from "./port-endpoint-use.ts";
import { viewEndpoints } from "./view-endpoints.ts";

/**
 * Returns one Service as the view of a node contains it.
 *
 * Endpoints are chosen per service port and family, as in kube-proxy: a pod without a named port, or an IPv6 slice that
 * lags behind, must not affect other ports and families. An endpoint that is used in the same way for all its ports and
 * families is one item. Otherwise each use is an item with the ports and addresses of that use. If a state file causes
 * two items with the same key, the later one wins; `isIncluded` filters items before that.
 *
 * Pure; O(endpoints of the Service × ports).
 *
 * Outside tests, only `kpng explain` calls this function, in `findFrontend`. Separate, because it is the readable
 * definition of a view: streams compute the same result for many nodes at once, from view classes and overlays
 * (`items/overlay.ts`), and tests compare both.
 */
export function makeServiceView(
  service: Service,
  slices: readonly EndpointSlice[],
  node: ChoosingNode,
  isIncluded: (endpoint: ViewEndpoint) => boolean = () => true,
): ServiceView {
  const merged = mergeSlices(slices);
  const uses = new Map<PortEndpoint, EndpointUse | undefined>();
  const usableGroups = new Set<PortGroup>();
  for (const { group, portEndpoints, choice, useOf } of choosePortEndpoints(service, merged, node)) {
    if (choice.hasEndpoints) usableGroups.add(group);
    for (const portEndpoint of portEndpoints) uses.set(portEndpoint, useOf(portEndpoint));
  }
  const endpoints = new Map<string, ViewEndpoint>();
  for (const one of merged.endpoints) {
    const ownUses = one.portEndpoints.map((portEndpoint) => portEndpoint && uses.get(portEndpoint));
    for (const item of viewEndpoints(service, one, ownUses, isOnNode(one.endpoint, node))) {
      if (isIncluded(item)) endpoints.set(item.key, item);
    }
  }
  return {
    service,
    portHasEndpoints: portFlags(service, usableGroups),
    endpoints: [...endpoints.values()].sort((a, b) => compareText(a.key, b.key)),
  };
}

/** The choice of a node among the port endpoints of one group. */
interface ChosenPortEndpoints {
  readonly group: PortGroup;
  readonly portEndpoints: readonly PortEndpoint[];
  readonly choice: Choice<PortEndpoint>;
  /** Returns how the node uses a port endpoint; undefined if its view does not contain it. */
  useOf(portEndpoint: PortEndpoint): EndpointUse | undefined;
}

/**
 * Chooses among the port endpoints of a Service, for `makeServiceView` and, with reasons, for `explainService`. Pure.
 */
export function* choosePortEndpoints(
  service: Service,
  { groups }: MergedSlices,
  node: ChoosingNode,
): Iterable<ChosenPortEndpoints> {
  const needed = neededSets(service);
  for (const [group, portEndpoints] of groups) {
    const choice = chooseEndpoints(portEndpoints, node, needed);
    const useOf = (portEndpoint: PortEndpoint): EndpointUse | undefined =>
      choice.uses.get(portEndpoint) ?? useInNoSet(service, portEndpoint);
    yield { group, portEndpoints, choice, useOf };
  }
}

/**
 * Returns for each port of a Service whether one of the usable port groups belongs to it. Also called by `ClassChoice`.
 */
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
    // An endpoint without ports serves the target port, to which only an unnamed service port leads.
    (port.name === "" && usable.has(family))
  );
}
