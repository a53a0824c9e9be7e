import { create } from "@bufbuild/protobuf";
import { compareText } from "@kpng/model/collections.ts";
import { type Node as NodeMessage, NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Subscriber } from "../../stream/session/subscribers.ts";
import { knownRevision, stateOf } from "./subscriber-row.ts";

/**
 * Rows of all nodes: what the subscribers of each node have applied. `kpng get nodes` shows them. Each row is made on
 * request.
 */
export interface NodeTable {
  /** Names of the cluster's Nodes and of the nodes of subscribed proxies, sorted. */
  readonly names: readonly string[];
  row(name: string): NodeMessage;
}

/**
 * Groups subscribers and endpoints by node. O(nodes + subscribers + endpoints). The methods ListNodes and WatchNodes
 * call it once for all rows, because each row alone would need a pass over all subscribers. Separate from
 * `subscriber-row.ts`, because a node may have several subscribers or none.
 */
export function nodeTable(snapshot: Snapshot, open: Iterable<Subscriber>): NodeTable {
  const subscribersByNode = new Map<string, Subscriber[]>();
  // An observer may ask for any name, so a name that only observers gave is not a node.
  const named = new Set<string>(snapshot.nodes.keys());
  for (const subscriber of open) {
    if (subscriber.kind !== "local" || subscriber.nodeName === "") continue;
    if (subscriber.isNode) named.add(subscriber.nodeName);
    const others = subscribersByNode.get(subscriber.nodeName);
    if (others === undefined) subscribersByNode.set(subscriber.nodeName, [subscriber]);
    else others.push(subscriber);
  }
  const endpointCounts = countByNode(snapshot);
  return {
    names: [...named].sort(compareText),
    row: (name) => {
      const subscribers = subscribersByNode.get(name) ?? [];
      return nodeRow(name, snapshot, subscribers, endpointCounts.get(name) ?? 0);
    },
  };
}

function nodeRow(
  name: string,
  { nodes, revision }: Snapshot,
  open: readonly Subscriber[],
  endpointCount: number,
): NodeMessage {
  const subscribers = open.filter(({ isNode }) => isNode);
  const node: Node | undefined = nodes.get(name);
  const states = subscribers.map((subscriber) => stateOf(subscriber, revision));
  const waiting = subscribers.flatMap(({ unappliedSinceMs }) => unappliedSinceMs ?? []);
  return create(NodeSchema, {
    name,
    isKnown: node !== undefined,
    zone: node?.zone ?? "",
    addresses: [...(node?.addresses ?? [])],
    podCidrs: [...(node?.podCIDRs ?? [])],
    isEligible: node?.isEligible ?? false,
    endpointCount,
    state: node === undefined ? ApplyState.UNKNOWN : (states.toSorted((a, b) => b - a)[0] ?? ApplyState.ABSENT),
    subscriberCount: subscribers.length,
    appliedRevision: BigInt(subscribers.length === 0 ? 0 : Math.min(...subscribers.map(knownRevision))),
    ...setIfDefined("unappliedSince", waiting.length === 0 ? undefined : timestampOf(Math.min(...waiting))),
    programs: [...new Set(subscribers.map(({ program }) => program))].filter((one) => one !== "").sort(compareText),
    error: subscribers.find(({ failure }) => failure !== undefined)?.failure?.error ?? "",
    observerCount: open.length - subscribers.length,
    labels: { ...node?.labels },
  });
}

const endpointCountsBySlices = new WeakMap<Snapshot["slicesByService"], ReadonlyMap<string, number>>();

/** Counts the endpoints of each node, once for each state of the slices. */
function countByNode({ slicesByService }: Snapshot): ReadonlyMap<string, number> {
  const known = endpointCountsBySlices.get(slicesByService);
  if (known !== undefined) return known;
  const counts = new Map<string, number>();
  endpointCountsBySlices.set(slicesByService, counts);
  for (const slices of slicesByService.values()) {
    for (const { endpoints } of slices) {
      for (const { nodeName } of endpoints) counts.set(nodeName, (counts.get(nodeName) ?? 0) + 1);
    }
  }
  return counts;
}
