import { getOrMake } from "@kpng/model/get-or-make.ts";
import { changedServices, derived } from "../store/derived.ts";
import { ShardedMap } from "../store/sharded-map.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { serviceStates } from "./service-state.ts";

/**
 * Returns the keys of the Services that have endpoints of the node's own, for any proxy and in no particular order.
 * With this index, a new subscriber costs its own endpoints and not all Services. `overlaysOf` and `encodeOwnInSteps`
 * call it. Separate from `ServiceState`, which knows one Service: this is an index over all.
 */
export function ownServices(snapshot: Snapshot, nodeName: string): ReadonlySet<string> {
  return keysByNode(snapshot).get(nodeName) ?? noServices;
}

const noServices: ReadonlySet<string> = new Set();

/** The keys of the Services by node. *Cost:* the nodes with endpoints of the Services that changed. */
const keysByNode = derived(ShardedMap.empty<ReadonlySet<string>>(), (byNode, before, snapshot) => {
  const next = new Map<string, Set<string>>();
  const edit = (name: string): Set<string> => getOrMake(next, name, () => new Set(byNode.get(name)));
  for (const key of changedServices(before, snapshot)) {
    const [old, now] = [ownersOf(before, key), ownersOf(snapshot, key)];
    for (const name of old.keys()) if (!now.has(name)) edit(name).delete(key);
    for (const name of now.keys()) if (!old.has(name)) edit(name).add(key);
  }
  const entries = [...next].map(([name, keys]) => [name, keys.size === 0 ? undefined : keys] as const);
  return byNode.withAll(entries);
});

/** The nodes for which a Service has own endpoints. */
function ownersOf(snapshot: Snapshot, key: string): ReadonlyMap<string, unknown> {
  return serviceStates(snapshot).get(key)?.own.byNode ?? noOwners;
}

const noOwners: ReadonlyMap<string, unknown> = new Map();
