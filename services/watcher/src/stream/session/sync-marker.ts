import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { syncFrame } from "../../items/frames.ts";
import { between } from "../../store/derived.ts";
import { emptySnapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { triggerTimes } from "../../store/trigger-times.ts";
import { ackIntervalFor } from "./acknowledgement.ts";
import { Marker } from "./marker.ts";
import { markerTraces } from "./marker-traces.ts";
import type { Batch } from "./subscription.ts";

/**
 * Returns the sync marker of a batch, the message that ends it. A subscriber that is not extended, such as KPNG's own,
 * gets KPNG's empty one. `openCount` is the number of open streams. Subscribers that advance between the same two
 * snapshots share the marker.
 *
 * `WatchStream` calls it at the end of each batch. Separate from `Marker`, which adds the digest of each node to the
 * bytes; this file collects the contents.
 */
export function syncMarker(batch: Batch, store: Store, toExtended: boolean, openCount: number): Marker {
  if (!toExtended) return plainMarker;
  const { snapshot, before } = batch;
  const context = { batch, store, openCount };
  // The traces in the marker of a first batch depend on the current time.
  if (before === undefined && snapshot.traces.length > 0) return makeMarker(context);
  return sharedMarker(before ?? emptySnapshot, snapshot, context);
}

/** Maximum number of trigger times in a marker. */
const maxTriggers = 100;

const plainMarker = new Marker(syncFrame());

interface MarkerContext {
  readonly batch: Batch;
  readonly store: Store;
  readonly openCount: number;
}

const sharedMarker = between((_before, _snapshot, context: MarkerContext) => makeMarker(context));

function makeMarker({ batch, store: { instance }, openCount }: MarkerContext): Marker {
  const { snapshot, before } = batch;
  const { revision, storedAtMs, position } = snapshot;
  const triggeredAtMs = before === undefined ? [] : newest(triggerTimes(before, snapshot));
  const traces = markerTraces(batch, openCount, wallClockMs());
  const ackIntervalMs = ackIntervalFor(openCount);
  return new Marker(syncFrame({ revision, instance, storedAtMs, triggeredAtMs, ackIntervalMs, position, ...traces }));
}

function newest(times: Iterable<number>): readonly number[] {
  return [...times].sort((a, b) => b - a).slice(0, maxTriggers);
}
