import type { EndpointUse, FamilyFlags } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { chooseEndpoints, isDraining, isOnNode } from "./choose-endpoints.ts";
import { neededSets, useInNoSet } from "./facet-use.ts";
import type { Facet, FacetGroup, MergedEndpoint, MergedSlices } from "./merge-slices.ts";
import { portFlags } from "./service-view.ts";
import type { Uses } from "./view-endpoints.ts";

/** Nodes for which a Service's endpoints are the same, but for those that are the node's own. */
export interface NodeClass {
  /** "" where zones make no difference. */
  readonly zone: string;
  /** The groups of facets in which endpoints are meant for the node by name, and which follow these hints. */
  readonly namedGroups: readonly FacetGroup[];
}

/**
 * A node's own endpoints of a Service are those that it runs, and those that are meant for it by name. Of all others a
 * node is told the same as every other node of its class:
 *
 * - which are ready, and in which zone the node is, decides on set "cluster", but in groups whose endpoints are meant
 *   for nodes by name: in these no other than its own are in the set;
 * - set "local" has none but its own.
 */
export interface ClassChoice {
  /** For each port of the Service; see ServiceItem. */
  readonly portHasEndpoints: readonly FamilyFlags[];
  /** How a node uses an endpoint that is not its own. */
  usesOf(endpoint: MergedEndpoint): Uses;
  /** How a node uses its own ones, in their order. */
  usesOfOwn(endpoints: readonly MergedEndpoint[], nodeName: string): readonly Uses[];
}

/** Pure; O(endpoints of the Service × ports). */
export function chooseForClass(service: Service, merged: MergedSlices, { zone, namedGroups }: NodeClass): ClassChoice {
  const needed = neededSets(service);
  // Most often all are in the set: those that are not are fewer to remember.
  const outside = new Set<Facet>();
  const usableGroups = new Set<FacetGroup>();
  for (const [group, facets] of merged.groups) {
    const { uses, hasEndpoints } = chooseEndpoints(facets, { name: "", zone }, { ...needed, local: false });
    if (hasEndpoints) usableGroups.add(group);
    if (needed.cluster) for (const facet of facets) if (!uses.has(facet)) outside.add(facet);
  }
  const isNamed = (facet: Facet): boolean => namedGroups.includes(facet.group);
  const isInCluster = (facet: Facet): boolean => needed.cluster && !isNamed(facet) && !outside.has(facet);
  const isMeant = (facet: Facet, nodeName: string): boolean =>
    needed.cluster && isNamed(facet) && facet.conditions.ready && facet.hintedNodes.includes(nodeName);
  const use = (facet: Facet, cluster: boolean, local: boolean): EndpointUse | undefined =>
    cluster || local ? { cluster, local } : useInNoSet(service, facet);
  return {
    portHasEndpoints: portFlags(service, usableGroups),
    usesOf: ({ facets }) => facets.map((facet) => facet && use(facet, isInCluster(facet), false)),
    usesOfOwn(endpoints, nodeName) {
      const groupsReadyHere = needed.local ? readyGroups(endpoints, nodeName) : undefined;
      const isLocal = (facet: Facet): boolean =>
        groupsReadyHere !== undefined &&
        isOnNode(facet, { name: nodeName }) &&
        (facet.conditions.ready || (isDraining(facet) && !groupsReadyHere.has(facet.group)));
      return endpoints.map(({ facets }) =>
        facets.map((facet) => facet && use(facet, isInCluster(facet) || isMeant(facet, nodeName), isLocal(facet))),
      );
    },
  };
}

/** The groups in which an endpoint on the node is ready. */
function readyGroups(own: readonly MergedEndpoint[], nodeName: string): ReadonlySet<FacetGroup> {
  const groups = new Set<FacetGroup>();
  for (const { facets } of own) {
    for (const facet of facets) {
      if (facet?.conditions.ready && isOnNode(facet, { name: nodeName })) groups.add(facet.group);
    }
  }
  return groups;
}

/** Which endpoints of a Service are each node's own, and where hints are followed. */
export interface OwnEndpoints {
  /** In the order of the slices. */
  readonly byNode: ReadonlyMap<string, readonly MergedEndpoint[]>;
  /** True if the zone of a node can make a difference. */
  readonly hasZoneHints: boolean;
  /** The groups of which every ready endpoint is meant for some node by name: one that is not switches all off. */
  readonly hintedGroups: ReadonlySet<FacetGroup>;
}

/** Pure; O(endpoints × ports). */
export function findOwn({ endpoints, groups }: MergedSlices): OwnEndpoints {
  const byNode = new Map<string, MergedEndpoint[]>();
  let hasZoneHints = false;
  let hasNodeHints = false;
  for (const one of endpoints) {
    const { nodeName, hintedZones, hintedNodes } = one.endpoint;
    hasZoneHints ||= hintedZones.length > 0;
    hasNodeHints ||= hintedNodes.length > 0;
    for (const name of hintedNodes.length === 0 ? [nodeName] : new Set([nodeName, ...hintedNodes])) {
      // An endpoint without a node is on no node, and none is meant for a node without a name.
      if (name === "") continue;
      const own = byNode.get(name);
      if (own === undefined) byNode.set(name, [one]);
      else own.push(one);
    }
  }
  const hintedGroups = new Set<FacetGroup>();
  for (const [group, facets] of hasNodeHints ? groups : []) {
    const ready = facets.filter(({ conditions }) => conditions.ready);
    if (ready.length > 0 && ready.every(({ hintedNodes }) => hintedNodes.length > 0)) hintedGroups.add(group);
  }
  return { byNode, hasZoneHints, hintedGroups };
}

/** The groups in which a node uses what is meant for it by name: see {@link NodeClass}. Ascending. */
export function namedGroupsFor(
  { hintedGroups }: OwnEndpoints,
  own: readonly MergedEndpoint[],
  nodeName: string,
): readonly FacetGroup[] {
  if (hintedGroups.size === 0) return noGroups;
  const named = own.flatMap(({ facets }) =>
    facets.flatMap((facet) =>
      facet?.conditions.ready && hintedGroups.has(facet.group) && facet.hintedNodes.includes(nodeName)
        ? [facet.group]
        : [],
    ),
  );
  return [...new Set(named)].sort();
}

const noGroups: readonly FacetGroup[] = [];
