import type { Endpoint } from "@kpng/model/endpoint.ts";
import type { EndpointUse } from "@kpng/model/node-view.ts";

/** What the choice needs to know of an endpoint. */
export type Candidate = Pick<Endpoint, "conditions" | "nodeName" | "hintedZones" | "hintedNodes">;

/** The node for which endpoints are chosen. */
export interface ChoosingNode {
  readonly name: string;
  /** "" if the node has no zone, or the cluster does not know the node. */
  readonly zone: string;
}

/** Which sets a Service needs. Source: kube-proxy `serviceport.go`, UsesClusterEndpoints and UsesLocalEndpoints. */
export interface NeededSets {
  readonly cluster: boolean;
  readonly local: boolean;
}

/**
 * What decided who is in a set.
 *
 * | rule | in the set |
 * |---|---|
 * | `not-needed` | nobody: the Service's policies do not ask for the set |
 * | `node-hints` | the ready ones that are meant for the node |
 * | `zone-hints` | the ready ones that are meant for its zone |
 * | `ready` | all ready ones, of set "local" those on the node |
 * | `draining` | those that still serve while they terminate; no ready one is left |
 * | `none` | nobody: there is none of either kind |
 */
export type SetRule = "not-needed" | "node-hints" | "zone-hints" | "ready" | "draining" | "none";

export interface Choice<C extends Candidate> {
  /** The endpoints that are in a set, in the order of the candidates. */
  readonly uses: ReadonlyMap<C, EndpointUse>;
  /** For each set, what decided it; see explainChoice for what that means for an endpoint. */
  readonly rules: { readonly cluster: SetRule; readonly local: SetRule };
  /** True if any candidate could be used by some node: what is missing here is then dropped, not refused. */
  readonly hasEndpoints: boolean;
}

interface ChosenSet<C> {
  readonly rule: SetRule;
  readonly members: readonly C[];
}

/**
 * Chooses which of the endpoints of one service port, of one family, a node uses.
 *
 * - Set "cluster": the ready endpoints that topology hints leave; if there are none, those that still serve while they
 *   terminate, whatever their hints.
 * - Set "local": the ready endpoints on the node; if there are none, those on it that still serve while they terminate.
 *   Hints mean nothing here.
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

const notNeeded: ChosenSet<never> = { rule: "not-needed", members: [] };

/** An endpoint without a node is on no node: not even on one that has no name. */
export function isOnNode(candidate: Pick<Candidate, "nodeName">, node: Pick<ChoosingNode, "name">): boolean {
  return candidate.nodeName !== "" && candidate.nodeName === node.name;
}

/** Not ready, but still answering: what Kubernetes calls serving and terminating. */
export function isDraining({ conditions }: Pick<Candidate, "conditions">): boolean {
  return !conditions.ready && conditions.serving && conditions.terminating;
}

/**
 * Returns those that are meant for the node, or all where hints cannot be followed safely: an endpoint without a hint
 * and nobody meant for this node each switch them off. A node without a zone is in the zone "", as in kube-proxy: only
 * a hint for just that, which the API server takes from people who write it, can mean the node.
 */
function matchHints<C extends Candidate>(ready: readonly C[], node: ChoosingNode): ChosenSet<C> {
  // Nothing is meant for a node without a name.
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
