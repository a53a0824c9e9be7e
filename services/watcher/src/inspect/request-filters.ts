import { type ApplyState, SubscriberKind } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { ShardedMap } from "../store/sharded-map.ts";
import type { Subscriber } from "../stream/session/subscriber.ts";
import { kindMessage, knownRevision, stateOf } from "./rows/subscriber-row.ts";

/** Which Services; "" stands for all. */
export interface ServiceFilter {
  readonly namespace: string;
  readonly name: string;
}

/** True if a key `namespace/name` matches. */
export function isSelected(key: string, { namespace, name }: ServiceFilter): boolean {
  const slash = key.indexOf("/");
  return (namespace === "" || key.slice(0, slash) === namespace) && (name === "" || key.slice(slash + 1) === name);
}

/** The keys after `after` that match, ascending. O(keys), or O(1) if namespace and name are given. */
export function selectKeys(
  maps: readonly Pick<ShardedMap<unknown>, "keys" | "get">[],
  filter: ServiceFilter,
  after: string,
): readonly string[] {
  if (filter.namespace !== "" && filter.name !== "") {
    const key = `${filter.namespace}/${filter.name}`;
    return key > after && maps.some((map) => map.get(key) !== undefined) ? [key] : [];
  }
  const keys = new Set<string>();
  for (const map of maps) for (const key of map.keys()) if (key > after && isSelected(key, filter)) keys.add(key);
  return [...keys].sort(compareText);
}

/** Which streams. */
export interface SubscriberFilter {
  readonly node: string;
  readonly kind: SubscriberKind;
  readonly notAppliedRevision: bigint;
  readonly states: readonly ApplyState[];
}

export function isSubscriberSelected(subscriber: Subscriber, filter: SubscriberFilter, newest: number): boolean {
  return (
    (filter.node === "" || subscriber.nodeName === filter.node) &&
    (filter.kind === SubscriberKind.UNSPECIFIED || filter.kind === kindMessage(subscriber.kind)) &&
    (filter.notAppliedRevision === 0n || BigInt(knownRevision(subscriber)) < filter.notAppliedRevision) &&
    isStateSelected(stateOf(subscriber, newest), filter.states)
  );
}

/** Which nodes. */
export interface NodeFilter {
  readonly name: string;
  readonly notAppliedRevision: bigint;
  readonly states: readonly ApplyState[];
}

export function isNodeSelected(
  node: { readonly state: ApplyState; readonly appliedRevision: bigint },
  filter: Omit<NodeFilter, "name">,
): boolean {
  return (
    (filter.notAppliedRevision === 0n || node.appliedRevision < filter.notAppliedRevision) &&
    isStateSelected(node.state, filter.states)
  );
}

function isStateSelected(state: ApplyState, states: readonly ApplyState[]): boolean {
  return states.length === 0 || states.includes(state);
}
