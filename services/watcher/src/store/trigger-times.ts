import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * When the objects changed that lead from one snapshot to another, as their annotation
 * `endpoints.kubernetes.io/last-change-trigger-time` says, in milliseconds since 1970: of each slice that changed or came.
 */
export function* triggerTimes(before: Snapshot, snapshot: Snapshot): Iterable<number> {
  for (const key of snapshot.slicesByService.changedKeys(before.slicesByService)) {
    const old = new Set<EndpointSlice>(before.slicesByService.get(key));
    for (const slice of snapshot.slicesByService.get(key) ?? []) {
      if (slice.triggeredAtMs !== undefined && !old.has(slice)) yield slice.triggeredAtMs;
    }
  }
}
