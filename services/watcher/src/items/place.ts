import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { choosingNode } from "../view/node.ts";
import { type Audience, audienceOf, type LocalRequest } from "./local-units.ts";

/** What a subscriber's view depends on beside the cluster: its node, and with whom it shares what it is told. */
export interface Place {
  readonly node: ChoosingNode;
  readonly audience: Audience;
}

export function placeIn(snapshot: Snapshot, request: LocalRequest): Place {
  const node = choosingNode(snapshot, request.nodeName);
  return { node, audience: audienceOf(request, node.zone) };
}

/** The place of one subscriber, which is asked for with each batch and hardly ever changes. */
export class PlaceFinder {
  readonly #request: LocalRequest;
  #nodes: Snapshot["nodes"] | undefined;
  #place: Place | undefined;

  constructor(request: LocalRequest) {
    this.#request = request;
  }

  /** The same object as long as the node is in the same zone. */
  at(snapshot: Snapshot): Place {
    const held = this.#place;
    if (held !== undefined && snapshot.nodes === this.#nodes) return held;
    const found = placeIn(snapshot, this.#request);
    this.#nodes = snapshot.nodes;
    if (held !== undefined && held.node.zone === found.node.zone) return held;
    this.#place = found;
    return found;
  }
}
