import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { diffItems } from "./diff-items.ts";
import { getOrMake } from "./get-or-make.ts";
import { audienceOf, concernedNodes, type LocalRequest, localOrder, noSlices, serviceItems } from "./local-units.ts";
import { type Changes, noChanges } from "./projection.ts";

/** What changed between two snapshots, worked out once for all subscribers that go from the one to the other. */
export interface LocalDelta {
  /** Services that may be told differently. */
  readonly keys: readonly string[];
  /** Nodes that are told something of their own about one of them, before or after. */
  readonly concernedNodes: ReadonlySet<string>;
  /** The changes for a node that is not concerned: the same object for each node of the zone. */
  changesFor(request: LocalRequest, node: ChoosingNode): Changes;
}

/**
 * Subscribers that keep up all go from the same snapshot to the same next one, so the delta is kept by both, as long as
 * the snapshots live: one that lags behind makes a delta of its own, and pins nothing but the snapshot that it was sent.
 */
const deltas = new WeakMap<Snapshot, WeakMap<Snapshot, LocalDelta>>();

/** *Cost:* the first time, what changed; after that, a look-up. */
export function localDelta(before: Snapshot, snapshot: Snapshot): LocalDelta {
  const fromBefore = getOrMake(deltas, before, () => new WeakMap<Snapshot, LocalDelta>());
  return getOrMake(fromBefore, snapshot, () => makeDelta(before, snapshot));
}

function makeDelta(before: Snapshot, snapshot: Snapshot): LocalDelta {
  const keys = [
    ...new Set([
      ...snapshot.services.changedKeys(before.services),
      ...snapshot.slicesByService.changedKeys(before.slicesByService),
    ]),
  ];
  const nodes = new Set<string>();
  const proxyNames = new Set<string | undefined>();
  for (const { services, slicesByService } of [before, snapshot]) {
    for (const key of keys) {
      proxyNames.add(services.get(key)?.proxyName);
      for (const name of concernedNodes(slicesByService.get(key) ?? noSlices)) nodes.add(name);
    }
  }
  const byAudience = new Map<string, Changes>();
  return {
    keys,
    concernedNodes: nodes,
    changesFor(request, node) {
      if (keys.length === 0) return noChanges;
      // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
      if (!proxyNames.has(request.proxyName)) return noChanges;
      return getOrMake(byAudience, audienceOf(request, node.zone), () => {
        const stranger = { name: "", zone: node.zone };
        const [sent, wanted] = [before, snapshot].map((one) => serviceItems(one, keys, request, stranger));
        return joined(diffItems(sent ?? [], wanted ?? [], localOrder));
      });
    },
  };
}

/** The frames as one piece: one write for each subscriber. */
function joined(changes: Changes): Changes {
  if (changes.isEmpty) return noChanges;
  const piece = Buffer.concat([...changes.frames()]);
  return { isEmpty: false, frames: () => [piece] };
}
