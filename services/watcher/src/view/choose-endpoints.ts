import type { Endpoint } from "@kpng/model/endpoint.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import type { EndpointUse } from "@kpng/model/node-view.ts";

/**
 * Chooses the endpoints that a node uses for one service port and family. `ClassChoice` uses the same rules for a class
 * of nodes.
 *
 * - Set "cluster": the ready endpoints to which topology hints lead. If there are none, the endpoints that terminate
 *   and still serve, regardless of hints.
 * - Set "local": the ready endpoints on the node. If there are none, the endpoints on the node that are terminating but
 *   still serving. Hints have no effect.
 *
 * Source: kube-proxy 1.36 `topology.go`, CategorizeEndpoints. Pure; O(candidates).
 */
export function chooseEndpoints<C extends Candidate>(
  candidates: readonly C[],
  node: ChoosingNode,
  needed: NeededSets,
): Choice<C> {
  const rules = {
    cluster: needed.cluster ? clusterRule(candidates, node) : "not-needed",
    local: needed.local ? anyRule(candidates.filter((candidate) => isOnNode(candidate, node))) : "not-needed",
  } as const;
  const uses = new Map<C, EndpointUse>();
  for (const candidate of candidates) {
    const cluster = isChosen(rules.cluster, candidate, node);
    const local = isOnNode(candidate, node) && isChosen(rules.local, candidate, node);
    if (cluster || local) uses.set(candidate, { cluster, local });
  }
  return { uses, rules, hasEndpoints: anyRule(candidates) !== "none" };
}

/** Returns the rule that decides which candidates are in set "cluster" of a node. */
export function clusterRule(candidates: readonly Candidate[], { name, zone }: ChoosingNode): SetRule {
  const rule = anyRule(candidates);
  if (rule !== "ready") return rule;
  // Hints count only if all ready endpoints have hints and one of them names this node; otherwise, following the hints
  // could leave the node without endpoints. A node without a zone is in zone "", as in kube-proxy. An empty hint names
  // no node.
  let [allNameNodes, allNameZones, isNamed, isZoneNamed] = [true, true, false, false];
  for (const { conditions, hintedNodes, hintedZones } of candidates) {
    if (!conditions.ready) continue;
    if (hintedNodes.length === 0) allNameNodes = false;
    else isNamed ||= name !== "" && hintedNodes.includes(name);
    if (hintedZones.length === 0) allNameZones = false;
    else isZoneNamed ||= hintedZones.includes(zone);
    if (!allNameNodes && !allNameZones) return "ready";
  }
  if (allNameNodes && isNamed) return "node-hints";
  return allNameZones && isZoneNamed ? "zone-hints" : "ready";
}

/** Returns the rule that applies to the candidates regardless of hints. */
function anyRule(candidates: readonly Candidate[]): "ready" | "draining" | "none" {
  if (candidates.some(({ conditions }) => conditions.ready)) return "ready";
  return candidates.some(isDraining) ? "draining" : "none";
}

/** True if a rule puts the candidate in its set. For set "local", the candidate must also be on the node. */
export function isChosen(rule: SetRule, candidate: Candidate, { name, zone }: ChoosingNode): boolean {
  switch (rule) {
    case "node-hints":
      return candidate.conditions.ready && candidate.hintedNodes.includes(name);
    case "zone-hints":
      return candidate.conditions.ready && candidate.hintedZones.includes(zone);
    case "ready":
      return candidate.conditions.ready;
    case "draining":
      return isDraining(candidate);
    case "none":
    case "not-needed":
      return false;
    default:
      return assertNever(rule);
  }
}

/** The fields of an endpoint that decide the choice. */
export type Candidate = Pick<Endpoint, "conditions" | "nodeName" | "hintedZones" | "hintedNodes">;

export interface ChoosingNode {
  readonly name: string;
  /** "" if the node has no zone, or is not in the cluster. */
  readonly zone: string;
}

/**
 * The endpoint sets that traffic to a Service may use. Source: kube-proxy `serviceport.go`, UsesClusterEndpoints and
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

export interface Choice<C extends Candidate> {
  /** The endpoints that are in at least one set, in the order of the candidates. */
  readonly uses: ReadonlyMap<C, EndpointUse>;
  /** The rule that decided each set; explainChoice derives the reason for a single endpoint. */
  readonly rules: { readonly cluster: SetRule; readonly local: SetRule };
  /** True if some node can use a candidate. A node without endpoints then drops packets instead of rejecting them. */
  readonly hasEndpoints: boolean;
}

/** True if the endpoint runs on the node. An endpoint without a node runs on none, even if the node has no name. */
export function isOnNode(candidate: Pick<Candidate, "nodeName">, node: Pick<ChoosingNode, "name">): boolean {
  return candidate.nodeName !== "" && candidate.nodeName === node.name;
}

/** True if the endpoint is not ready, but serving and terminating. */
export function isDraining({ conditions }: Pick<Candidate, "conditions">): boolean {
  return !conditions.ready && conditions.serving && conditions.terminating;
}

/** Returns why an endpoint is, or is not, in one of a node's sets. Pure; O(1). */
export function explainChoice<C extends Candidate>(
  candidate: C,
  set: keyof EndpointUse,
  choice: Choice<C>,
  node: ChoosingNode,
): ChoiceReason {
  const rule = choice.rules[set];
  if (choice.uses.get(candidate)?.[set] === true) {
    if (rule === "node-hints") return "hinted-to-node";
    if (rule === "zone-hints") return "hinted-to-zone";
    return rule === "draining" ? "last-resort" : "ready";
  }
  const { conditions } = candidate;
  if (rule === "not-needed") return "set-not-needed";
  if (!conditions.ready && !isDraining(candidate)) return conditions.terminating ? "terminated" : "not-ready";
  if (set === "local" && !isOnNode(candidate, node)) return "not-on-node";
  if (!conditions.ready) return "terminating";
  return rule === "node-hints" ? "hinted-to-other-nodes" : "hinted-to-other-zones";
}

/** The reason why an endpoint is in a set (the first four), or is not. */
export type ChoiceReason =
  | "ready" // It is ready and, in set "local", on the node.
  | "hinted-to-node" // Its hints name this node.
  | "hinted-to-zone" // Its hints name this node's zone.
  | "last-resort" // It terminates and still serves, and no endpoint is ready.
  | "set-not-needed" // The Service's policies do not need the set.
  | "not-ready"
  | "terminated" // It terminates and no longer serves.
  | "not-on-node" // The set is "local" and it runs on another node.
  | "terminating" // It terminates, and other endpoints are ready.
  | "hinted-to-other-nodes" // Its hints name other nodes, and other endpoints name this node.
  | "hinted-to-other-zones"; // Its hints name other zones, and other endpoints name this node's zone.
