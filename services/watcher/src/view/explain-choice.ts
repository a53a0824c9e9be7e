import type { EndpointUse } from "@kpng/model/node-view.ts";
import { type Candidate, type Choice, type ChoosingNode, isDraining, isOnNode } from "./choose-endpoints.ts";

/**
 * Returns why an endpoint is, or is not, in a node's set "cluster" or "local": the endpoints for traffic with that
 * policy. Pure; O(1).
 *
 * `explainService` calls it; `kpng get view` and `kpng explain` show the reason. Separate from `chooseEndpoints`,
 * because views need no reasons.
 */
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

/**
 * The reason why an endpoint is in a set, or is not.
 *
 * | reason | in the set | because |
 * |---|---|---|
 * | `ready` | yes | it is ready and, in set "local", on the node |
 * | `hinted-to-node` | yes | its hints name this node |
 * | `hinted-to-zone` | yes | its hints name this node's zone |
 * | `last-resort` | yes | it terminates and still serves, and no endpoint is ready |
 * | `set-not-needed` | no | the Service's policies do not need the set |
 * | `not-ready` | no | it is not ready |
 * | `terminated` | no | it terminates and no longer serves |
 * | `not-on-node` | no | the set is "local" and it runs on another node |
 * | `terminating` | no | it terminates, and other endpoints are ready |
 * | `hinted-to-other-nodes` | no | its hints name other nodes, and other endpoints name this node |
 * | `hinted-to-other-zones` | no | its hints name other zones, and other endpoints name this node's zone |
 */
export type ChoiceReason =
  | "ready"
  | "hinted-to-node"
  | "hinted-to-zone"
  | "last-resort"
  | "set-not-needed"
  | "not-ready"
  | "terminated"
  | "not-on-node"
  | "terminating"
  | "hinted-to-other-nodes"
  | "hinted-to-other-zones";
