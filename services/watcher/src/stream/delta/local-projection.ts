import type { Item } from "../../items/item.ts";
import { type LocalRequest, localOrder, nodeItems } from "../../items/local-units.ts";
import { type Place, PlaceFinder } from "../../items/place.ts";
import { serviceStates } from "../../items/service-state.ts";
import { itemsOfUnit, nodeUnit, serviceFor } from "../../items/service-units.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { diffItems } from "./diff-items.ts";
import { localDelta } from "./local-delta.ts";
import { ViewDigest } from "./local-digests.ts";
import { wholeView } from "./local-whole.ts";
import { nodeDelta } from "./node-delta.ts";
import type { Changes, Projection } from "./projection.ts";

/** The view of one node as a stream's items. */
export function localProjection(request: LocalRequest): Projection {
  const places = new PlaceFinder(request);
  const digest = new ViewDigest(request);
  return {
    whole: (snapshot) =>
      wholeView(snapshot, request, places.at(snapshot), (units) => {
        if (request.isExtended) digest.learn(snapshot, places.at(snapshot), units);
      }),
    between(before, snapshot) {
      const old = places.at(before);
      const place = places.at(snapshot);
      if (old === place) return nodeDelta(before, snapshot, request, place, localDelta(before, snapshot));
      return afterMove([before, old], [snapshot, place], request);
    },
    items: (snapshot) => itemsOf(snapshot, snapshot.services.keys(), request, places.at(snapshot)),
    digest: (snapshot) => digest.at(snapshot, places.at(snapshot)),
    order: localOrder,
  };
}

type Situation = readonly [Snapshot, Place];

/** In another zone endpoints are chosen anew where hints for zones are. */
function afterMove([before, old]: Situation, [snapshot, place]: Situation, request: LocalRequest): Changes {
  const keys = new Set(localDelta(before, snapshot).keys);
  for (const one of [before, snapshot]) {
    for (const [key, state] of serviceStates(one).entries()) if (state.own.hasZoneHints) keys.add(key);
  }
  return diffItems(itemsOf(before, keys, request, old), itemsOf(snapshot, keys, request, place), localOrder);
}

function* itemsOf(
  snapshot: Snapshot,
  keys: Iterable<string>,
  { wantsNode, nodeName }: LocalRequest,
  { node, audience }: Place,
): Iterable<Item> {
  if (wantsNode) yield* nodeItems(snapshot, nodeName);
  for (const key of keys) {
    const state = serviceFor(snapshot, key, audience);
    if (state !== undefined) yield* itemsOfUnit(nodeUnit(state, node, audience.isExtended, false));
  }
}
