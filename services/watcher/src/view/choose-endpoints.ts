import type { Endpoint } from "@kpng/model/endpoint.ts";
import type { EndpointUse } from "@kpng/model/node-view.ts";

/**
 * Chooses the endpoints of one service port and family that a node uses. `makeServiceView` calls it for one node,
 * `chooseForClass` for a class of nodes, and `kpng explain` through `explainService`, so all agree. Separate from these
 * because it knows only a list of candidates, as kube-proxy's function does.
 *
 * - Set "cluster": the ready endpoints to which topology hints lead. If there are none, the endpoints that terminate
 *   and still serve, regardless of hints.
 * - Set "local": the ready endpoints on the node. If there are none, the endpoints on the node that terminate and still
 *   serve. Hints have no effect.
 *
 * Source: kube-proxy 1.36 `topology.go`, CategorizeEndpoints. Pure; O(candidates).
 */
export function chooseEndpoints<C extends Candidate>(
  candidates: readonly C[],
  node: ChoosingNode,
  needed: NeededSets,
): Choice<C> {
  const ready = candidates.filter((candidate) => candidate.conditions.ready);
  const draining = candidates.filter(isDraining);
  const isLocal = (candidate: C): boolean => isOnNode(candidate, node);
  const forCluster = needed.cluster ? orElse(matchHints(ready, node), draining) : notNeeded;
  const forLocal = needed.local
    ? orElse({ rule: "ready", members: ready.filter(isLocal) }, draining.filter(isLocal))
    : notNeeded;
  const cluster = new Set<C>(forCluster.members);
  const local = new Set<C>(forLocal.members);
  const uses = new Map<C, EndpointUse>();
  for (const candidate of candidates) {
    if (cluster.has(candidate) || local.has(candidate)) {
      uses.set(candidate, { cluster: cluster.has(candidate), local: local.has(candidate) });
    }
  }
  const rules = { cluster: forCluster.rule, local: forLocal.rule };
  return { uses, rules, hasEndpoints: ready.length > 0 || draining.length > 0 };
}

/** The fields of an endpoint on which the choice depends. */
export type Candidate = Pick<Endpoint, "conditions" | "nodeName" | "hintedZones" | "hintedNodes">;

/** The node for which endpoints are chosen. */
export interface ChoosingNode {
  readonly name: string;
  /** "" if the node has no zone, or is not in the cluster. */
  readonly zone: string;
}

/**
 * The endpoint sets that a Service needs. Source: kube-proxy `serviceport.go`, UsesClusterEndpoints and
 * UsesLocalEndpoints.
 */
export interface NeededSets {
  readonly cluster: boolean;
  readonly local: boolean;
}

/**
 * The rule that decided which endpoints are in a set.
 *
 * | rule | endpoints in the set |
 * |---|---|
 * | `not-needed` | none: the Service's policies do not need the set |
 * | `node-hints` | ready endpoints whose hints name the node |
 * | `zone-hints` | ready endpoints whose hints name the node's zone |
 * | `ready` | all ready endpoints; in set "local", those on the node |
 * | `draining` | endpoints that terminate and still serve, because none is ready |
 * | `none` | none: no endpoint is ready, and none drains |
 */
export type SetRule = "not-needed" | "node-hints" | "zone-hints" | "ready" | "draining" | "none";

/** The result of {@link chooseEndpoints}. */
export interface Choice<C extends Candidate> {
  /** The endpoints that are in at least one set, in the order of the candidates. */
  readonly uses: ReadonlyMap<C, EndpointUse>;
  /** The rule that decided each set; explainChoice derives the reason for a single endpoint. */
  readonly rules: { readonly cluster: SetRule; readonly local: SetRule };
  /** True if some node can use a candidate. A node without endpoints then drops packets instead of rejecting them. */
  readonly hasEndpoints: boolean;
}

interface ChosenSet<C> {
  readonly rule: SetRule;
  readonly members: readonly C[];
}

const notNeeded: ChosenSet<never> = { rule: "not-needed", members: [] };

/** True if the endpoint runs on the node. An endpoint without a node runs on none, even if the node has no name. */
export function isOnNode(candidate: Pick<Candidate, "nodeName">, node: Pick<ChoosingNode, "name">): boolean {
  return candidate.nodeName !== "" && candidate.nodeName === node.name;
}

/** True if the endpoint is not ready, but serving and terminating. */
export function isDraining({ conditions }: Pick<Candidate, "conditions">): boolean {
  return !conditions.ready && conditions.serving && conditions.terminating;
}

/**
 * Returns the endpoints whose hints name the node or its zone. Returns all if an endpoint has no hint, or no hint names
 * this node: then following hints could leave the node without endpoints.
 *
 * A node without a zone is in zone "", as in kube-proxy, so only a hint for zone "" can name its zone.
 */
function matchHints<C extends Candidate>(ready: readonly C[], node: ChoosingNode): ChosenSet<C> {
  // An empty hint names no node.
  const forNode = ready.filter(({ hintedNodes }) => node.name !== "" && hintedNodes.includes(node.name));
  if (forNode.length > 0 && ready.every((candidate) => candidate.hintedNodes.length > 0)) {
    return { rule: "node-hints", members: forNode };
  }
  const forZone = ready.filter((candidate) => candidate.hintedZones.includes(node.zone));
  if (forZone.length > 0 && ready.every((candidate) => candidate.hintedZones.length > 0)) {
    return { rule: "zone-hints", members: forZone };
  }
  return { rule: "ready", members: ready };
}

function orElse<C>(first: ChosenSet<C>, draining: readonly C[]): ChosenSet<C> {
  if (first.members.length > 0) return first;
  return { rule: draining.length > 0 ? "draining" : "none", members: draining };
}
