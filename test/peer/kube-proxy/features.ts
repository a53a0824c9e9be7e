import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type Service, type ServicePort } from "@kpng/model/service.ts";
import type { ChoosingNode } from "../../../services/watcher/src/view/choose-endpoints.ts";
import type { PortEndpoint } from "../../../services/watcher/src/view/merge-slices.ts";

/** One choice of endpoints: for a port and family of a Service, on a node. */
export interface Choosing {
  readonly service: Service;
  readonly port: ServicePort;
  readonly family: Family;
  readonly node: ChoosingNode;
  readonly facets: readonly PortEndpoint[];
  readonly view: NodeView;
}

/**
 * Features of the choice of endpoints, with the condition that shows each. Every branch of choose-endpoints.ts has one.
 */
export const choiceFeatures: Readonly<Record<string, (choosing: Choosing) => boolean>> = {
  "node hints are followed": (c) => usesCluster(c) && followsNodes(c) && !isAllFor(c, "hintedNodes"),
  "node hints are followed where zone hints lead elsewhere": (c) =>
    usesCluster(c) && followsNodes(c) && hasAll(c, "hintedZones") && !isEqual(forMe(c, "nodes"), forMe(c, "zones")),
  "a ready endpoint without node hint switches them off": (c) =>
    usesCluster(c) && forMe(c, "nodes").length > 0 && !hasAll(c, "hintedNodes"),
  "node hints for other nodes only are not followed": (c) =>
    usesCluster(c) && hasAll(c, "hintedNodes") && forMe(c, "nodes").length === 0,
  "zone hints are followed": (c) => usesCluster(c) && followsZones(c) && !isAllFor(c, "hintedZones"),
  "zone hints are followed where node hints cannot be": (c) =>
    usesCluster(c) && followsZones(c) && !isAllFor(c, "hintedZones") && some(ready(c), (f) => f.hintedNodes.length > 0),
  "a ready endpoint without zone hint switches them off": (c) =>
    usesCluster(c) && !followsNodes(c) && forMe(c, "zones").length > 0 && !hasAll(c, "hintedZones"),
  "zone hints for other zones only are not followed": (c) =>
    usesCluster(c) && !followsNodes(c) && c.node.zone !== "" && hasAll(c, "hintedZones") && isNobody(c, "zones"),
  "a node without zone follows no zone hints": (c) =>
    usesCluster(c) && !followsNodes(c) && c.node.zone === "" && hasAll(c, "hintedZones") && isNobody(c, "zones"),
  "an endpoint that is not ready does not affect hints": (c) =>
    usesCluster(c) && (followsNodes(c) || followsZones(c)) && some(unready(c), (f) => f.hintedZones.length === 0),
  "policy Local follows no hints": (c) =>
    usesLocal(c) && some(ready(c).filter(onNode(c)), (f) => followsZones(c) && !f.hintedZones.includes(c.node.zone)),
  "draining endpoints serve a cluster that has no ready one": (c) =>
    usesCluster(c) && ready(c).length === 0 && draining(c).length > 0,
  "draining endpoints serve whatever their hints": (c) =>
    usesCluster(c) && ready(c).length === 0 && some(draining(c), (f) => isHintedElsewhere(f, c.node)),
  "draining endpoints do not serve beside a ready one": (c) =>
    usesCluster(c) && ready(c).length > 0 && draining(c).length > 0,
  "ready endpoints on the node serve policy Local": (c) => usesLocal(c) && some(ready(c), onNode(c)),
  "draining endpoints on the node serve policy Local although others are ready elsewhere": (c) =>
    usesLocal(c) && ready(c).length > 0 && !some(ready(c), onNode(c)) && some(draining(c), onNode(c)),
  "draining endpoints on the node serve policy Local when none is ready": (c) =>
    usesLocal(c) && ready(c).length === 0 && some(draining(c), onNode(c)),
  "draining endpoints on the node do not serve policy Local beside a ready one": (c) =>
    usesLocal(c) && some(ready(c), onNode(c)) && some(draining(c), onNode(c)),
  "an endpoint without a node serves no policy Local": (c) => usesLocal(c) && some(ready(c), (f) => f.nodeName === ""),
  "dropped inside: others have endpoints": (c) => c.service.internalTrafficPolicy === "Local" && isOnlyElsewhere(c),
  "dropped outside: others have endpoints": (c) => isExternalLocal(c) && isOnlyElsewhere(c),
  "pods reach external addresses through endpoints on other nodes": (c) => isExternalLocal(c) && isOnlyElsewhere(c),
  "only policy Local, nothing from outside": (c) => !usesCluster(c) && usesLocal(c) && hasAny(c),
  "refused: no endpoints": (c) => c.facets.length === 0,
  "refused: none that is ready or draining": (c) => c.facets.length > 0 && !hasAny(c),
  "ready although terminating": (c) => some(ready(c), (f) => f.conditions.terminating),
  "ready although not serving": (c) => some(ready(c), (f) => !f.conditions.serving),
  IPv4: (c) => c.family === "v4" && hasAny(c),
  IPv6: (c) => c.family === "v6" && hasAny(c),
  UDP: (c) => c.port.protocol === "UDP" && hasAny(c),
  SCTP: (c) => c.port.protocol === "SCTP" && hasAny(c),
  "an unnamed port": (c) => c.port.name === "" && hasAny(c),
  "an endpoint lacks a port that others have": (c) =>
    hasAny(c) && some(itemsOf(c), ({ ports, addresses }) => addresses[c.family].length > 0 && !some(ports, isFor(c))),
  "an endpoint is used in one way for a port and in another for the next": (c) =>
    some(itemsOf(c), (a) => some(itemsOf(c), (b) => isSamePlace(a, b) && a.use.cluster !== b.use.cluster)),
  "one port name on different numbers": (c) => new Set(c.facets.map(({ port }) => port?.port)).size > 1,
  "an endpoint has several addresses": (c) => some(ready(c), (f) => f.endpoint.addresses[c.family].length > 1),
};

type Test<T> = (item: T) => boolean;

function some<T>(items: readonly T[], test: Test<T>): boolean {
  return items.some(test);
}

function usesCluster({ service }: Choosing): boolean {
  return service.internalTrafficPolicy === "Cluster" || isExternallyAccessible(service);
}

function usesLocal(choosing: Choosing): boolean {
  return choosing.service.internalTrafficPolicy === "Local" || isExternalLocal(choosing);
}

function isExternalLocal({ service }: Choosing): boolean {
  return service.externalTrafficPolicy === "Local" && isExternallyAccessible(service);
}

function ready({ facets }: Choosing): readonly PortEndpoint[] {
  return facets.filter(({ conditions }) => conditions.ready);
}

function unready({ facets }: Choosing): readonly PortEndpoint[] {
  return facets.filter(({ conditions }) => !conditions.ready);
}

function draining(choosing: Choosing): readonly PortEndpoint[] {
  return unready(choosing).filter(({ conditions }) => conditions.serving && conditions.terminating);
}

function hasAny(choosing: Choosing): boolean {
  return ready(choosing).length + draining(choosing).length > 0;
}

function onNode({ node }: Choosing): Test<PortEndpoint> {
  return ({ nodeName }) => nodeName === node.name;
}

function isOnlyElsewhere(choosing: Choosing): boolean {
  return hasAny(choosing) && ![...ready(choosing), ...draining(choosing)].some(onNode(choosing));
}

function forMe(choosing: Choosing, hints: "nodes" | "zones"): readonly PortEndpoint[] {
  const { name, zone } = choosing.node;
  return ready(choosing).filter(({ hintedNodes, hintedZones }) =>
    hints === "nodes" ? hintedNodes.includes(name) : hintedZones.includes(zone),
  );
}

function isNobody(choosing: Choosing, hints: "nodes" | "zones"): boolean {
  return forMe(choosing, hints).length === 0;
}

function hasAll(choosing: Choosing, hints: "hintedNodes" | "hintedZones"): boolean {
  const endpoints = ready(choosing);
  return endpoints.length > 0 && endpoints.every((facet) => facet[hints].length > 0);
}

function followsNodes(choosing: Choosing): boolean {
  return hasAll(choosing, "hintedNodes") && !isNobody(choosing, "nodes");
}

function followsZones(choosing: Choosing): boolean {
  return !followsNodes(choosing) && hasAll(choosing, "hintedZones") && !isNobody(choosing, "zones");
}

/** Returns whether following the hints makes no difference. */
function isAllFor(choosing: Choosing, hints: "hintedNodes" | "hintedZones"): boolean {
  return forMe(choosing, hints === "hintedNodes" ? "nodes" : "zones").length === ready(choosing).length;
}

function isEqual(one: readonly PortEndpoint[], other: readonly PortEndpoint[]): boolean {
  return one.length === other.length && one.every((facet) => other.includes(facet));
}

function isHintedElsewhere(facet: PortEndpoint, node: ChoosingNode): boolean {
  return facet.hintedZones.length > 0 && !facet.hintedZones.includes(node.zone);
}

function itemsOf({ view, service }: Choosing) {
  return view.services.get(`${service.namespace}/${service.name}`)?.endpoints ?? [];
}

type Item = ReturnType<typeof itemsOf>[number];

function isFor({ port }: Choosing): Test<Item["ports"][number]> {
  return ({ name, protocol }) => name === port.name && (protocol ?? port.protocol) === port.protocol;
}

function isSamePlace(a: Item, b: Item): boolean {
  return a !== b && a.addresses.v4[0] === b.addresses.v4[0] && a.addresses.v6[0] === b.addresses.v6[0];
}
