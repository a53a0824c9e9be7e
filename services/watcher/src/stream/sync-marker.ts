import { emptySnapshot, type Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { triggerTimes } from "../store/trigger-times.ts";
import { type Frame, syncFrame } from "./frames.ts";
import { getOrMake } from "./get-or-make.ts";
import type { Batch } from "./subscription.ts";

/** Most trigger times that a marker names. */
const maxTriggers = 100;

const plainMarker = syncFrame();
const markers = new WeakMap<Snapshot, WeakMap<Snapshot, Frame>>();

/**
 * The marker of a batch; to a subscriber that is not extended it says nothing more than KPNG's.
 *
 * Those that go from the same snapshot to the same next one share it.
 */
export function syncMarker({ snapshot, before }: Batch, { instance }: Store, toExtended: boolean): Frame {
  if (!toExtended) return plainMarker;
  const fromBefore = getOrMake(markers, before ?? emptySnapshot, () => new WeakMap<Snapshot, Frame>());
  return getOrMake(fromBefore, snapshot, () =>
    syncFrame({
      revision: snapshot.revision,
      instance,
      storedAtMs: snapshot.storedAtMs,
      triggeredAtMs: before === undefined ? [] : newest(triggerTimes(before, snapshot)),
    }),
  );
}

function newest(times: Iterable<number>): readonly number[] {
  return [...times].sort((a, b) => b - a).slice(0, maxTriggers);
}
