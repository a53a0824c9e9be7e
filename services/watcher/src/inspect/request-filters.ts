import { compareText } from "@kpng/model/collections.ts";
import { type ApplyState, SubscriberKind } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { ShardedMap } from "../store/sharded-map.ts";
import type { Subscriber } from "../stream/session/subscribers.ts";
import type { ChangeRecord } from "./changes/change-record.ts";
import { kindToWire, knownRevision, stateOf } from "./rows/subscriber-row.ts";

/**
 * Filter for Services, a part of the requests of `kpng get`; "" matches all. Separate, because the list and the watch
 * methods of InspectService call the functions of this file, so that both select the same rows.
 */
export interface ServiceFilter {
  readonly namespace: string;
  readonly name: string;
}

/** True if a key `namespace/name` matches. */
export function matchesService(key: string, { namespace, name }: ServiceFilter): boolean {
  const slash = key.indexOf("/");
  return (namespace === "" || key.slice(0, slash) === namespace) && (name === "" || key.slice(slash + 1) === name);
}

/** Returns the matching keys after `after`, sorted. O(keys), or O(1) if namespace and name are given. */
export function selectKeys(
  map: Pick<ShardedMap<unknown>, "keys" | "get">,
  filter: ServiceFilter,
  after: string,
): readonly string[] {
  if (filter.namespace !== "" && filter.name !== "") {
    const key = `${filter.namespace}/${filter.name}`;
    return key > after && map.get(key) !== undefined ? [key] : [];
  }
  return [...map.keys()].filter((key) => key > after && matchesService(key, filter)).sort(compareText);
}

/** True if a change affects a matching Service, as far as the record names its objects: at most 100. */
export function matchesChange({ facts }: ChangeRecord, filter: ServiceFilter): boolean {
  if (filter.namespace === "" && filter.name === "") return true;
  return facts.objects.some(({ kind, key }) => kind !== "node" && matchesService(key, filter));
}

/** Filter for subscribers; default values match all. */
export interface SubscriberFilter {
  readonly node: string;
  readonly kind: SubscriberKind;
  readonly notAppliedRevision: bigint;
  readonly states: readonly ApplyState[];
}

/** True if a subscriber matches. `newest` is the newest revision of the store. */
export function matchesSubscriber(subscriber: Subscriber, filter: SubscriberFilter, newest: number): boolean {
  return (
    (filter.node === "" || subscriber.nodeName === filter.node) &&
    (filter.kind === SubscriberKind.UNSPECIFIED || filter.kind === kindToWire(subscriber)) &&
    (filter.notAppliedRevision === 0n || BigInt(knownRevision(subscriber)) < filter.notAppliedRevision) &&
    matchesState(stateOf(subscriber, newest), filter.states)
  );
}

/** True if a node row matches. The callers compare the name of the node before they make its row. */
export function matchesNode(
  node: { readonly state: ApplyState; readonly appliedRevision: bigint },
  filter: Pick<SubscriberFilter, "notAppliedRevision" | "states">,
): boolean {
  return (
    (filter.notAppliedRevision === 0n || node.appliedRevision < filter.notAppliedRevision) &&
    matchesState(node.state, filter.states)
  );
}

function matchesState(state: ApplyState, states: readonly ApplyState[]): boolean {
  return states.length === 0 || states.includes(state);
}
