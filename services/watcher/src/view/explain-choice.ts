import type { EndpointUse } from "@kpng/model/node-view.ts";
import { type Candidate, type Choice, type ChoosingNode, isDraining, isOnNode } from "./choose-endpoints.ts";

/**
 * Why an endpoint is in a set, or is not.
 *
 * | reason | in the set | because |
 * |---|---|---|
 * | `ready` | yes | it is ready, and of set "local" on the node |
 * | `hinted-to-node` | yes | it is meant for this node |
 * | `hinted-to-zone` | yes | it is meant for this node's zone |
 * | `last-resort` | yes | it still serves while it terminates, and no ready one is left |
 * | `set-not-needed` | no | the Service's policies do not ask for the set |
 * | `not-ready` | no | it is not ready |
 * | `terminated` | no | it terminates and serves no longer |
 * | `not-on-node` | no | the policy is Local and it runs elsewhere |
 * | `terminating` | no | it terminates, and others are ready |
 * | `hinted-to-other-nodes` | no | it is meant for other nodes, and others are meant for this one |
 * | `hinted-to-other-zones` | no | it is meant for other zones, and others are meant for this node's |
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

/** Says why a candidate of a choice is in a set, or is not. Pure; O(1). */
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
