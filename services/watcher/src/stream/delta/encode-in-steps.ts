import { digestOf } from "../../items/item-digests.ts";
import { ownServices } from "../../items/own-services.ts";
import { type ServiceState, serviceStates } from "../../items/service-state.ts";
import type { ViewClass, ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";

/** Endpoints that one step encodes: 2 to 8 ms, depending on how much of the code is compiled. */
const endpointsPerStep = 512;

/**
 * Encodes the items that a class of nodes shares of some Services in short steps, and yields between them. The
 * functions that then use the items find them in the caches of the Services. In one piece, a node with a thousand own
 * endpoints, or a chunk of large Services, would take a tenth of a second.
 *
 * `perClass`, `encodeChunkInSteps` and, through `encodeOwnInSteps`, `wholeView` call it before they need many items at
 * once. Separate, because all three need it.
 */
export function* encodeInSteps(states: Iterable<ServiceState>, viewClass: ViewClass): Iterable<undefined> {
  let count = 0;
  for (const state of states) {
    if (state.service.proxyName !== viewClass.proxyName) continue;
    for (const items of state.encodeInSteps(viewClass, endpointsPerStep)) {
      // The sync marker needs the digests of all items at once.
      if (viewClass.isExtended) for (const item of items) digestOf(item);
      count += items.length;
      if (count < endpointsPerStep) continue;
      count = 0;
      yield undefined;
    }
    state.sharedItems(viewClass);
  }
}

/** Same as {@link encodeInSteps}, for the Services that have endpoints of the target's own. */
export function encodeOwnInSteps(snapshot: Snapshot, { node, viewClass }: ViewTarget): Iterable<undefined> {
  const states = serviceStates(snapshot);
  const own = [...ownServices(snapshot, node.name)].map((key) => states.get(key));
  return encodeInSteps(
    own.filter((state) => state !== undefined),
    viewClass,
  );
}
