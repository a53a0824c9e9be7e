import type { AddressSet, Family } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { EndpointUse, FamilyFlags, ServiceView, ViewEndpoint, ViewNode } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type Service, type ServicePort } from "@kpng/model/service.ts";
import { endpointKey } from "@kpng/model/wire/endpoint-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { type Choice, type ChoosingNode, chooseEndpoints, isOnNode, type NeededSets } from "./choose-endpoints.ts";
import {
  type MergedEndpoint,
  type MergedSlices,
  mergeSlices,
  type PortEndpoint,
  type PortGroup,
} from "./merge-slices.ts";

/**
 * Returns one Service as it appears in the view of a node: with the endpoints that the node uses, and the traffic for
 * which it uses them.
 *
 * **The problem.** Which endpoints get traffic with policy Cluster, and which with policy Local? Do topology hints
 * apply? What if only terminating pods are left? May the node reject packets, or does another node have an endpoint?
 * The answers differ by port and family: a pod without a named port, or an IPv6 slice that lags behind in a rollout,
 * must not affect other ports and families.
 *
 * **The idea.** A *port endpoint* is one endpoint for one port in one family. Four pure steps:
 *
 * 1. `mergeSlices` groups the port endpoints of all slices by family, protocol and port name, and removes duplicates.
 * 2. `chooseEndpoints` finds, for each group, the port endpoints in the sets "cluster" and "local", as kube-proxy does.
 * 3. `viewEndpoints` creates one item for an endpoint whose ports are all used in the same way, and otherwise one item
 *    for each use.
 * 4. `portFlags` determines for each port and family whether any node has an endpoint. If so, a node without one drops
 *    packets instead of rejecting them.
 *
 * **Example.** A NodePort Service with the ports http (TCP) and dns (UDP), and externalTrafficPolicy Local:
 *
 * ```text
 * endpoint   node   state                    ports       node n1                    node n2
 * web-1      n1     ready                    http        http: cluster, local       http: cluster
 * web-2      n2     ready                    http        http: cluster              http: cluster, local
 * web-0      n1     terminates and serves    http, dns   dns:  cluster, local       dns:  cluster
 * ```
 *
 * New connections to http avoid web-0, because other endpoints are ready. It still serves dns, for which no other
 * endpoint is left. If endpoints were chosen for the whole Service, nodes would reject dns. The items of n1 are web-0
 * with port dns, web-1, and web-2.
 *
 * **Invariants.** The view depends only on the Service, its slices (sorted by name, as in a snapshot), and the node's
 * name and zone. The key of an item depends only on its endpoint, so that two watchers agree on the key
 * (`endpointKey`). `kpng explain` prints the rules by which `chooseEndpoints` decided; nothing is decided twice.
 *
 * **For many nodes**, streams compute the same result from `ClassChoice` and `Overlay`; tests compare both byte for
 * byte. Only `kpng explain`, tests, and programs that embed a watcher call this function.
 *
 * **Rejected.** *A choice in each backend*: every backend would repeat these rules, and every node would receive all
 * endpoints.
 *
 * If a state file causes two items with the same key, the later one wins. Pure; O(endpoints of the Service × ports).
 */
export function makeServiceView(service: Service, slices: readonly EndpointSlice[], node: ChoosingNode): ServiceView {
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
      endpoints.set(item.key, item);
    }
  }
  return {
    service,
    portHasEndpoints: portFlags(service, usableGroups),
    endpoints: [...endpoints.values()].sort((a, b) => compareText(a.key, b.key)),
  };
}

interface ChosenPortEndpoints {
  readonly group: PortGroup;
  readonly portEndpoints: readonly PortEndpoint[];
  readonly choice: Choice<PortEndpoint>;
  /** Returns how the node uses a port endpoint; undefined if its view does not contain it. */
  useOf(portEndpoint: PortEndpoint): EndpointUse | undefined;
}

/** Yields the choice for each group of port endpoints of a Service. */
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

/** Returns for each port of the Service and each family whether one of the `usable` groups serves it. */
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
    // An endpoint without ports serves the target port, which only an unnamed service port can reach.
    (port.name === "" && usable.has(family))
  );
}

/**
 * Returns the endpoint sets that a Service needs. Pods and the node itself may use an external address; set "cluster"
 * applies to their traffic, whatever the external policy is. The view of a headless Service contains all endpoints.
 * Unlike kube-proxy, set "local" does not require that a Service with external policy Local is externally accessible:
 * the API server permits this policy for no other Service.
 */
export function neededSets(service: Service): NeededSets {
  return {
    cluster: service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(service) || service.isHeadless,
    local: service.internalTrafficPolicy === "Local" || service.externalTrafficPolicy === "Local",
  };
}

/** Use of an endpoint in neither set: it gets no new connections. */
const forOldFlows: EndpointUse = { cluster: false, local: false };

/**
 * Returns the use of a port endpoint that is in neither set; undefined if no view contains it. A serving UDP endpoint
 * may still have flows even if it is draining or hints lead elsewhere, and so may any endpoint of a whole address. Views
 * contain such an endpoint, so that nodes delete only the conntrack entries of endpoints that no longer exist. Source:
 * kube-proxy `conntrack/cleanup.go`.
 */
export function useInNoSet(service: Service, { conditions, port }: PortEndpoint): EndpointUse | undefined {
  const protocol = port?.protocol ?? service.ports.find(({ name }) => name === (port?.name ?? ""))?.protocol;
  return (protocol === "UDP" || service.mapIP) && conditions.serving ? forOldFlows : undefined;
}

/**
 * Returns an endpoint as it appears in the view of a node: as one item if all ports and families have the same use,
 * otherwise as one item for each use and family, with the corresponding ports and addresses. Ports without a use are
 * left out. Pure; O(ports × families).
 */
export function viewEndpoints(
  service: Service,
  { endpoint, slice, portEndpoints }: MergedEndpoint,
  uses: Uses,
  isOnNode: boolean,
): ViewEndpoint[] {
  const used = portEndpoints.flatMap((portEndpoint, index): Used[] => {
    const use = uses[index];
    return portEndpoint === undefined || use === undefined ? [] : [{ portEndpoint, use }];
  });
  const isWhole = used.length === portEndpoints.length && used.every(({ use }) => isSameUse(use, used[0]?.use));
  const parts = isWhole
    ? [used]
    : [...Map.groupBy(used, ({ portEndpoint, use }) => `${portEndpoint.family} ${use.cluster} ${use.local}`).values()];
  return parts.flatMap((part) => {
    const sample = part[0];
    if (sample === undefined) return [];
    const item = {
      addresses: isWhole ? endpoint.addresses : onlyFamily(endpoint.addresses, sample.portEndpoint.family),
      ports: isWhole
        ? endpoint.ports
        : part.flatMap(({ portEndpoint }): EndpointPort[] =>
            portEndpoint.port === undefined ? [] : [portEndpoint.port],
          ),
      hostname: endpoint.hostname,
      podName: endpoint.podName,
      nodeName: endpoint.nodeName,
      isOnNode,
      use: sample.use,
      conditions: endpoint.conditions,
      scopes: {
        internal: service.internalTrafficPolicy === "Local" ? sample.use.local : sample.use.cluster,
        external: service.externalTrafficPolicy === "Local" ? sample.use.local : sample.use.cluster,
      },
    };
    const identity = { podName: endpoint.podName, sliceName: slice.name, hasPodKey: slice.hasPodKeys, isWhole };
    return [{ ...item, key: endpointKey(item, service, identity) }];
  });
}

/** The use of each port endpoint (one port in one family), in the order of `portEndpoints`; undefined if unused. */
export type Uses = readonly (EndpointUse | undefined)[];

interface Used {
  readonly portEndpoint: PortEndpoint;
  readonly use: EndpointUse;
}

function isSameUse(a: EndpointUse, b: EndpointUse | undefined): boolean {
  return a.cluster === b?.cluster && a.local === b.local;
}

function onlyFamily(addresses: AddressSet, family: Family): AddressSet {
  return family === "v4" ? { v4: addresses.v4, v6: [] } : { v4: [], v6: addresses.v6 };
}

/** Returns the part of a node's view that describes the node itself; undefined if the node is not in the cluster. */
export function makeViewNode(snapshot: Snapshot, nodeName: string): ViewNode | undefined {
  const node = snapshot.nodes.get(nodeName);
  if (node === undefined) return undefined;
  const { name, zone, addresses, podCIDRs, isEligible } = node;
  return { name, zone, addresses, podCIDRs, isEligible, serviceCIDRs: snapshot.serviceCIDRs };
}

/** Returns the node for which endpoints are chosen. If the cluster does not know it, it has no zone. */
export function choosingNode(snapshot: Snapshot, nodeName: string): ChoosingNode {
  return { name: nodeName, zone: snapshot.nodes.get(nodeName)?.zone ?? "" };
}
