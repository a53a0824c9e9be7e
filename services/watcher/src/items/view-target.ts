import { Derived } from "../store/derived.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { choosingNode } from "../view/service-view.ts";

/** A request, and what a snapshot says about its node. Together with that snapshot, it determines a view. */
export interface ViewTarget {
  readonly request: NodeViewRequest;
  readonly node: ChoosingNode;
  readonly viewClass: ViewClass;
}

/** The parameters of a node view, as a subscriber requests them. */
export interface NodeViewRequest {
  readonly nodeName: string;
  readonly proxyName: string;
  /** True if the subscriber understands kpng's additional fields and respects Scopes. */
  readonly isExtended: boolean;
  /** True if the view includes the node itself. */
  readonly wantsNode: boolean;
  /** True if the subscriber understands compressed batches of operations. Default false. */
  readonly takesBatches?: boolean | undefined;
}

/**
 * The nodes in one zone whose subscribers request the same proxy name and understand the same fields. They receive the
 * same items for every Service without own endpoints of the node (`ClassChoice`).
 */
export interface ViewClass {
  /** Unique for each class. */
  readonly key: string;
  readonly isExtended: boolean;
  /** Undefined if no Service has the requested proxy name, so that requests with arbitrary names use no memory. */
  readonly proxyName: string | undefined;
  readonly zone: string;
}

/** Returns the view class with these properties. The zone is "" for items that do not depend on it. */
export function viewClassOf({ isExtended, proxyName }: Omit<ViewClass, "key" | "zone">, zone: string): ViewClass {
  // The length separates the zone from the name: zones and names from a state file may contain any character.
  const key = `${isExtended} ${zone.length} ${zone}${proxyName === undefined ? "" : ` ${proxyName}`}`;
  return { key, isExtended, proxyName, zone };
}

/** Returns the view target of a request, according to the node and the proxy names in this snapshot. */
export function viewTargetIn(snapshot: Snapshot, request: NodeViewRequest): ViewTarget {
  const { isExtended, nodeName } = request;
  const node = choosingNode(snapshot, nodeName);
  const proxyName = proxyNames.at(snapshot).has(request.proxyName) ? request.proxyName : undefined;
  return { request, node, viewClass: viewClassOf({ isExtended, proxyName }, node.zone) };
}

/** The proxy names of all Services. *Cost:* one pass over the Services whenever one of them changes. */
export const proxyNames = Derived.atOnce<ReadonlySet<string>>(new Set(), (names, before, { services }) =>
  services === before.services ? names : new Set([...services.values()].map(({ proxyName }) => proxyName)),
);

/** Caches the view target of one subscriber. Each batch needs the target, which hardly ever changes. */
export class ViewTargetTracker {
  readonly #request: NodeViewRequest;
  #nodes: Snapshot["nodes"] | undefined;
  #services: Snapshot["services"] | undefined;
  #target: ViewTarget | undefined;

  constructor(request: NodeViewRequest) {
    this.#request = request;
  }

  /** Returns the same object until the node's zone changes, or the proxy name comes into use or goes out of use. */
  at(snapshot: Snapshot): ViewTarget {
    const cached = this.#target;
    if (cached !== undefined && snapshot.nodes === this.#nodes && snapshot.services === this.#services) return cached;
    this.#nodes = snapshot.nodes;
    this.#services = snapshot.services;
    const target = viewTargetIn(snapshot, this.#request);
    // The key has everything that a target takes from a snapshot; a new field of ChoosingNode must enter the key, too.
    if (cached?.viewClass.key === target.viewClass.key) return cached;
    this.#target = target;
    return target;
  }
}
