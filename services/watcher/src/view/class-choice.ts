import type { EndpointUse, FamilyFlags } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { shareUse } from "@kpng/model/shared-values.ts";
import { chooseEndpoints, isDraining, isOnNode, type NeededSets } from "./choose-endpoints.ts";
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
export class ClassChoice {
  /** For each port of the Service; see ServiceItem. */
  readonly portHasEndpoints: readonly FamilyFlags[];
  readonly #service: Service;
  readonly #needed: NeededSets;
  readonly #namedGroups: readonly FacetGroup[];
  /** Most often all are in set "cluster": those that are not are fewer to remember. */
  readonly #outside: ReadonlySet<Facet>;

  constructor(service: Service, needed: NeededSets, namedGroups: readonly FacetGroup[], chosen: ChosenGroups) {
    this.portHasEndpoints = portFlags(service, chosen.usable);
    this.#service = service;
    this.#needed = needed;
    this.#namedGroups = namedGroups;
    this.#outside = chosen.outside.length === 0 ? noFacets : new Set(chosen.outside);
  }

  /** How a node uses an endpoint that is not its own. */
  usesOf({ facets }: MergedEndpoint): Uses {
    return facets.map((facet) => facet && this.#use(facet, this.#isInCluster(facet), false));
  }

  /** How a node uses its own ones, in their order. */
  usesOfOwn(endpoints: readonly MergedEndpoint[], nodeName: string): readonly Uses[] {
    const groupsReadyHere = this.#needed.local ? readyGroups(endpoints, nodeName) : undefined;
    const isLocal = (facet: Facet): boolean =>
      groupsReadyHere !== undefined &&
      isOnNode(facet, { name: nodeName }) &&
      (facet.conditions.ready || (isDraining(facet) && !groupsReadyHere.has(facet.group)));
    const use = (facet: Facet): EndpointUse | undefined =>
      this.#use(facet, this.#isInCluster(facet) || this.#isMeant(facet, nodeName), isLocal(facet));
    return endpoints.map(({ facets }) => facets.map((facet) => facet && use(facet)));
  }

  #isNamed({ group }: Facet): boolean {
    return this.#namedGroups.includes(group);
  }

  #isInCluster(facet: Facet): boolean {
    return this.#needed.cluster && !this.#isNamed(facet) && !this.#outside.has(facet);
  }

  #isMeant(facet: Facet, nodeName: string): boolean {
    const { conditions, hintedNodes } = facet;
    return this.#needed.cluster && this.#isNamed(facet) && conditions.ready && hintedNodes.includes(nodeName);
  }

  #use(facet: Facet, cluster: boolean, local: boolean): EndpointUse | undefined {
    return cluster || local ? shareUse(cluster, local) : useInNoSet(this.#service, facet);
  }
}

const noFacets: ReadonlySet<Facet> = new Set();

/** What was chosen among the facets of each group. */
interface ChosenGroups {
  /** Facets that are not in set "cluster". */
  readonly outside: readonly Facet[];
  /** The groups of which some node can use something. */
  readonly usable: ReadonlySet<FacetGroup>;
}

/** Pure; O(endpoints of the Service × ports). */
export function chooseForClass(service: Service, merged: MergedSlices, { zone, namedGroups }: NodeClass): ClassChoice {
  const needed = neededSets(service);
  const outside: Facet[] = [];
  const usable = new Set<FacetGroup>();
  for (const [group, facets] of merged.groups) {
    const { uses, hasEndpoints } = chooseEndpoints(facets, { name: "", zone }, { ...needed, local: false });
    if (hasEndpoints) usable.add(group);
    if (needed.cluster) for (const facet of facets) if (!uses.has(facet)) outside.push(facet);
  }
  return new ClassChoice(service, needed, namedGroups, { outside, usable });
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
  if (!hasNodeHints) return { byNode, hasZoneHints, hintedGroups: noneHinted };
  const hintedGroups = new Set<FacetGroup>();
  for (const [group, facets] of groups) {
    const ready = facets.filter(({ conditions }) => conditions.ready);
    if (ready.length > 0 && ready.every(({ hintedNodes }) => hintedNodes.length > 0)) hintedGroups.add(group);
  }
  return { byNode, hasZoneHints, hintedGroups };
}

const noneHinted: ReadonlySet<FacetGroup> = new Set();

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
