import type { EndpointUse, FamilyFlags } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { shareUse } from "@kpng/model/shared-values.ts";
import { chooseEndpoints, isDraining, isOnNode, type NeededSets } from "./choose-endpoints.ts";
import type { MergedEndpoint, MergedSlices, PortEndpoint, PortGroup } from "./merge-slices.ts";
import { neededSets, useInNoSet } from "./port-endpoint-use.ts";
import { portFlags } from "./service-view.ts";
import type { Uses } from "./view-endpoints.ts";

/** Nodes for which a Service's endpoints are the same, but for those that are the node's own. */
export interface NodeClass {
  /** "" where zones make no difference. */
  readonly zone: string;
  /** The groups of facets in which endpoints are meant for the node by name, and which follow these hints. */
  readonly namedGroups: readonly PortGroup[];
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
  readonly #namedGroups: readonly PortGroup[];
  /** Most often all are in set "cluster": those that are not are fewer to remember. */
  readonly #outside: ReadonlySet<PortEndpoint>;

  constructor(service: Service, needed: NeededSets, namedGroups: readonly PortGroup[], chosen: ChosenGroups) {
    this.portHasEndpoints = portFlags(service, chosen.usable);
    this.#service = service;
    this.#needed = needed;
    this.#namedGroups = namedGroups;
    this.#outside = chosen.outside.length === 0 ? noPortEndpoints : new Set(chosen.outside);
  }

  /** How a node uses an endpoint that is not its own. */
  usesOf({ portEndpoints }: MergedEndpoint): Uses {
    return portEndpoints.map(
      (portEndpoint) => portEndpoint && this.#use(portEndpoint, this.#isInCluster(portEndpoint), false),
    );
  }

  /** How a node uses its own ones, in their order. */
  usesOfOwn(endpoints: readonly MergedEndpoint[], nodeName: string): readonly Uses[] {
    const groupsReadyHere = this.#needed.local ? readyGroups(endpoints, nodeName) : undefined;
    const isLocal = (portEndpoint: PortEndpoint): boolean =>
      groupsReadyHere !== undefined &&
      isOnNode(portEndpoint, { name: nodeName }) &&
      (portEndpoint.conditions.ready || (isDraining(portEndpoint) && !groupsReadyHere.has(portEndpoint.group)));
    const use = (portEndpoint: PortEndpoint): EndpointUse | undefined =>
      this.#use(
        portEndpoint,
        this.#isInCluster(portEndpoint) || this.#isMeant(portEndpoint, nodeName),
        isLocal(portEndpoint),
      );
    return endpoints.map(({ portEndpoints }) => portEndpoints.map((portEndpoint) => portEndpoint && use(portEndpoint)));
  }

  #isNamed({ group }: PortEndpoint): boolean {
    return this.#namedGroups.includes(group);
  }

  #isInCluster(portEndpoint: PortEndpoint): boolean {
    return this.#needed.cluster && !this.#isNamed(portEndpoint) && !this.#outside.has(portEndpoint);
  }

  #isMeant(portEndpoint: PortEndpoint, nodeName: string): boolean {
    const { conditions, hintedNodes } = portEndpoint;
    return this.#needed.cluster && this.#isNamed(portEndpoint) && conditions.ready && hintedNodes.includes(nodeName);
  }

  #use(portEndpoint: PortEndpoint, cluster: boolean, local: boolean): EndpointUse | undefined {
    return cluster || local ? shareUse(cluster, local) : useInNoSet(this.#service, portEndpoint);
  }
}

const noPortEndpoints: ReadonlySet<PortEndpoint> = new Set();

/** What was chosen among the facets of each group. */
interface ChosenGroups {
  /** Facets that are not in set "cluster". */
  readonly outside: readonly PortEndpoint[];
  /** The groups of which some node can use something. */
  readonly usable: ReadonlySet<PortGroup>;
}

/** Pure; O(endpoints of the Service × ports). */
export function chooseForClass(service: Service, merged: MergedSlices, { zone, namedGroups }: NodeClass): ClassChoice {
  const needed = neededSets(service);
  const outside: PortEndpoint[] = [];
  const usable = new Set<PortGroup>();
  for (const [group, portEndpoints] of merged.groups) {
    const { uses, hasEndpoints } = chooseEndpoints(portEndpoints, { name: "", zone }, { ...needed, local: false });
    if (hasEndpoints) usable.add(group);
    if (needed.cluster)
      for (const portEndpoint of portEndpoints) if (!uses.has(portEndpoint)) outside.push(portEndpoint);
  }
  return new ClassChoice(service, needed, namedGroups, { outside, usable });
}

/** The groups in which an endpoint on the node is ready. */
function readyGroups(own: readonly MergedEndpoint[], nodeName: string): ReadonlySet<PortGroup> {
  const groups = new Set<PortGroup>();
  for (const { portEndpoints } of own) {
    for (const portEndpoint of portEndpoints) {
      if (portEndpoint?.conditions.ready && isOnNode(portEndpoint, { name: nodeName })) groups.add(portEndpoint.group);
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
  readonly hintedGroups: ReadonlySet<PortGroup>;
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
  const hintedGroups = new Set<PortGroup>();
  for (const [group, portEndpoints] of groups) {
    const ready = portEndpoints.filter(({ conditions }) => conditions.ready);
    if (ready.length > 0 && ready.every(({ hintedNodes }) => hintedNodes.length > 0)) hintedGroups.add(group);
  }
  return { byNode, hasZoneHints, hintedGroups };
}

const noneHinted: ReadonlySet<PortGroup> = new Set();

/** The groups in which a node uses what is meant for it by name: see {@link NodeClass}. Ascending. */
export function namedGroupsFor(
  { hintedGroups }: OwnEndpoints,
  own: readonly MergedEndpoint[],
  nodeName: string,
): readonly PortGroup[] {
  if (hintedGroups.size === 0) return noGroups;
  const named = own.flatMap(({ portEndpoints }) =>
    portEndpoints.flatMap((portEndpoint) =>
      portEndpoint?.conditions.ready &&
      hintedGroups.has(portEndpoint.group) &&
      portEndpoint.hintedNodes.includes(nodeName)
        ? [portEndpoint.group]
        : [],
    ),
  );
  return [...new Set(named)].sort();
}

const noGroups: readonly PortGroup[] = [];
