import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Returns the trigger times of the slices that changed between two snapshots, in milliseconds since 1970. The
 * annotation `endpoints.kubernetes.io/last-change-trigger-time` of a slice holds the time of the event that
 * caused the change, e.g. a change of a pod.
 *
 * `syncMarker`, `RecentChanges` and `traceRevisions` call it: metrics, `kpng trace` and traces start at these times.
 * Separate, because all three need it.
 */
export function* triggerTimes(before: Snapshot, snapshot: Snapshot): Iterable<number> {
  for (const key of snapshot.slicesByService.changedKeys(before.slicesByService)) {
    const old = new Set<EndpointSlice>(before.slicesByService.get(key));
    for (const slice of snapshot.slicesByService.get(key) ?? []) {
      if (slice.triggeredAtMs !== undefined && !old.has(slice)) yield slice.triggeredAtMs;
    }
  }
}
