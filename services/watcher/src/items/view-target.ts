import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { choosingNode } from "../view/node.ts";
import { type NodeViewRequest, type ViewClass, viewClassOf } from "./node-view-items.ts";

/** What a subscriber's view depends on beside the cluster: its node, and with whom it shares what it is told. */
export interface ViewTarget {
  readonly node: ChoosingNode;
  readonly viewClass: ViewClass;
}

export function viewTargetIn(snapshot: Snapshot, request: NodeViewRequest): ViewTarget {
  const node = choosingNode(snapshot, request.nodeName);
  return { node, viewClass: viewClassOf(request, node.zone) };
}

/** The place of one subscriber, which is asked for with each batch and hardly ever changes. */
export class ViewTargetTracker {
  readonly #request: NodeViewRequest;
  #nodes: Snapshot["nodes"] | undefined;
  #target: ViewTarget | undefined;

  constructor(request: NodeViewRequest) {
    this.#request = request;
  }

  /** The same object as long as the node is in the same zone. */
  at(snapshot: Snapshot): ViewTarget {
    const held = this.#target;
    if (held !== undefined && snapshot.nodes === this.#nodes) return held;
    const found = viewTargetIn(snapshot, this.#request);
    this.#nodes = snapshot.nodes;
    if (held !== undefined && held.node.zone === found.node.zone) return held;
    this.#target = found;
    return found;
  }
}
