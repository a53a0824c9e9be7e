import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { compareText, getOrMake } from "@kpng/model/collections.ts";
import { type Node as NodeMessage, NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { ListSubscribersRequest } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import {
  ApplyState,
  type ApplyTimingsSchema,
  SubscriberKind as KindMessage,
  type Subscriber as SubscriberMessage,
  SubscriberSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { durationOf, timestampOf } from "@kpng/model/wire/time-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ApplyTimings } from "../stream/session/acknowledgement.ts";
import type { Subscriber } from "../stream/session/subscribers.ts";

/** Converts a subscriber to its message. `newest` is the newest revision of the store. */
export function subscriberRow(subscriber: Subscriber, newest: number): SubscriberMessage {
  const { failure, timings, unappliedSinceMs } = subscriber;
  return create(SubscriberSchema, {
    id: BigInt(subscriber.id),
    kind: kindMessage(subscriber),
    node: subscriber.nodeName,
    serviceProxyName: subscriber.proxyName,
    peer: subscriber.peer,
    program: subscriber.program,
    version: subscriber.version,
    openedAt: timestampOf(subscriber.openedAtMs),
    state: stateOf(subscriber, newest),
    sentRevision: BigInt(subscriber.upToDateRevision),
    receivedRevision: BigInt(subscriber.receivedRevision),
    hasAcknowledged: subscriber.hasAcknowledged,
    appliedRevision: BigInt(subscriber.appliedRevision),
    revisionsBehind: BigInt(Math.max(0, newest - knownRevision(subscriber))),
    ...setIfDefined("unappliedSince", unappliedSinceMs === undefined ? undefined : timestampOf(unappliedSinceMs)),
    error: failure?.error ?? "",
    ...setIfDefined("timings", timings && timingsMessage(timings)),
  });
}

function kindMessage({ kind, isObserver }: Pick<Subscriber, "kind" | "isObserver">): KindMessage {
  if (isObserver) return KindMessage.OBSERVER;
  return kind === "local" ? KindMessage.NODE : KindMessage.RELAY;
}

/** Newest revision that a subscriber has applied or, if it never acknowledges (KPNG's clients, relays), received. */
function knownRevision(subscriber: Subscriber): number {
  return subscriber.hasAcknowledged ? subscriber.appliedRevision : subscriber.receivedRevision;
}

/**
 * Returns the progress of a subscriber:
 *
 * - FAILING: its last attempt to apply a batch failed.
 * - BEHIND: it has not yet applied (or received) the newest revision, or the store is still empty.
 * - CURRENT: it has applied the newest revision.
 * - RECEIVED: it has received the newest revision and never acknowledges.
 */
function stateOf(subscriber: Subscriber, newest: number): ApplyState {
  if (subscriber.failure !== undefined) return ApplyState.FAILING;
  if (newest === 0 || knownRevision(subscriber) < newest) return ApplyState.BEHIND;
  return subscriber.hasAcknowledged ? ApplyState.CURRENT : ApplyState.RECEIVED;
}

export function timingsMessage({
  waitMs,
  renderMs,
  commitMs,
}: ApplyTimings): MessageInitShape<typeof ApplyTimingsSchema> {
  return { wait: durationOf(waitMs), render: durationOf(renderMs), commit: durationOf(commitMs) };
}

/** Filter for subscribers and nodes; default values match all. */
type ProgressFilter = Pick<ListSubscribersRequest, "node" | "states">;

export function matchesSubscriber(subscriber: Subscriber, filter: ProgressFilter, newest: number): boolean {
  return matches(subscriber.nodeName, stateOf(subscriber, newest), filter);
}

function matches(nodeName: string, state: ApplyState, { node, states }: ProgressFilter): boolean {
  return (node === "" || nodeName === node) && (states.length === 0 || states.includes(state));
}

/** Progress of a node's backends in applying the state. */
interface NodeProgress {
  /** The node's streams, except the streams of observers. */
  readonly subscribers: readonly Subscriber[];
  readonly observerCount: number;
  readonly state: ApplyState;
  /** Error of the node's last attempt to apply a change; "" if that attempt succeeded. */
  readonly error: string;
  /**
   * Time since which a change has been waiting to be applied, in milliseconds since 1970; undefined if none is waiting.
   */
  readonly unappliedSinceMs: number | undefined;
}

/**
 * Returns the progress of the cluster's Nodes, and of unknown nodes that backends named, sorted by name. O(nodes +
 * subscribers).
 */
export function nodeProgress(
  { nodes, revision }: Snapshot,
  open: Iterable<Subscriber>,
): ReadonlyMap<string, NodeProgress> {
  const subscribersByNode = new Map<string, Subscriber[]>();
  // Observers may request any name, so the names that they request do not count.
  const named = new Set<string>(nodes.keys());
  for (const subscriber of open) {
    if (subscriber.kind !== "local" || subscriber.nodeName === "") continue;
    if (subscriber.isNode) named.add(subscriber.nodeName);
    getOrMake(subscribersByNode, subscriber.nodeName, () => []).push(subscriber);
  }
  const progressOf = (name: string): NodeProgress => {
    const streams = subscribersByNode.get(name) ?? [];
    const subscribers = streams.filter(({ isNode }) => isNode);
    const states = subscribers.map((subscriber) => stateOf(subscriber, revision));
    const unappliedSinceMs = subscribers.flatMap((subscriber) => subscriber.unappliedSinceMs ?? []);
    return {
      subscribers,
      observerCount: streams.length - subscribers.length,
      state: nodes.get(name) === undefined ? ApplyState.UNKNOWN : worstOf(states),
      error: subscribers.find(({ failure }) => failure !== undefined)?.failure?.error ?? "",
      unappliedSinceMs: unappliedSinceMs.length === 0 ? undefined : Math.min(...unappliedSinceMs),
    };
  };
  return new Map([...named].sort(compareText).map((name) => [name, progressOf(name)]));
}

/** The numbers of the states that subscribers have ascend from the best to the worst. */
function worstOf(states: readonly ApplyState[]): ApplyState {
  return states.toSorted((one, other) => other - one)[0] ?? ApplyState.ABSENT;
}

/**
 * Returns the names of the matching nodes, sorted, each with a function that makes the node's row. O(nodes +
 * subscribers + endpoints).
 */
export function nodeRows(
  snapshot: Snapshot,
  open: Iterable<Subscriber>,
  filter: ProgressFilter,
): readonly (readonly [name: string, make: () => readonly NodeMessage[]])[] {
  const endpointCounts = countByNode(snapshot);
  return [...nodeProgress(snapshot, open)]
    .filter(([name, { state }]) => matches(name, state, filter))
    .map(([name, progress]) => {
      return [name, () => [nodeRow(name, snapshot.nodes.get(name), progress, endpointCounts.get(name) ?? 0)]];
    });
}

function nodeRow(
  name: string,
  node: Node | undefined,
  { subscribers, state, unappliedSinceMs, error, observerCount }: NodeProgress,
  endpointCount: number,
): NodeMessage {
  return create(NodeSchema, {
    name,
    isKnown: node !== undefined,
    zone: node?.zone ?? "",
    addresses: [...(node?.addresses ?? [])],
    podCidrs: [...(node?.podCIDRs ?? [])],
    isEligible: node?.isEligible ?? false,
    endpointCount,
    state,
    subscriberCount: subscribers.length,
    appliedRevision: BigInt(subscribers.length === 0 ? 0 : Math.min(...subscribers.map(knownRevision))),
    ...setIfDefined("unappliedSince", unappliedSinceMs === undefined ? undefined : timestampOf(unappliedSinceMs)),
    programs: [...new Set(subscribers.map(({ program }) => program))].filter((one) => one !== "").sort(compareText),
    error,
    observerCount,
    labels: { ...node?.labels },
  });
}

function countByNode({ slicesByService }: Snapshot): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const slices of slicesByService.values()) {
    for (const { endpoints } of slices) {
      for (const { nodeName } of endpoints) counts.set(nodeName, (counts.get(nodeName) ?? 0) + 1);
    }
  }
  return counts;
}
