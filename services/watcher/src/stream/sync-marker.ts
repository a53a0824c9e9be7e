import { getOrMake } from "@kpng/model/get-or-make.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { emptySnapshot, type Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { triggerTimes } from "../store/trigger-times.ts";
import { type Frame, syncFrame } from "./frames.ts";
import { type MarkerTraces, markerTraces } from "./marker-traces.ts";
import type { Batch } from "./subscription.ts";

/** Most trigger times that a marker names. */
const maxTriggers = 100;

const plainMarker = syncFrame();
const markers = new WeakMap<Snapshot, WeakMap<Snapshot, Frame>>();

/**
 * The marker of a batch; to a subscriber that is not extended it says nothing more than KPNG's. `openCount` is the number
 * of streams.
 *
 * Those that go from the same snapshot to the same next one share it.
 */
export function syncMarker(batch: Batch, { instance }: Store, toExtended: boolean, openCount: number): Frame {
  if (!toExtended) return plainMarker;
  const { snapshot, before } = batch;
  const traces = (): MarkerTraces => markerTraces(batch, openCount, wallClockMs());
  if (before === undefined && snapshot.traces.length > 0) return makeMarker(batch, instance, traces());
  const fromBefore = getOrMake(markers, before ?? emptySnapshot, () => new WeakMap<Snapshot, Frame>());
  return getOrMake(fromBefore, snapshot, () => makeMarker(batch, instance, traces()));
}

function makeMarker({ snapshot, before }: Batch, instance: string, traces: MarkerTraces): Frame {
  const { revision, storedAtMs } = snapshot;
  const triggeredAtMs = before === undefined ? [] : newest(triggerTimes(before, snapshot));
  return syncFrame({ revision, instance, storedAtMs, triggeredAtMs, ...traces });
}

function newest(times: Iterable<number>): readonly number[] {
  return [...times].sort((a, b) => b - a).slice(0, maxTriggers);
}
