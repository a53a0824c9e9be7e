import type { Snapshot } from "./snapshot.ts";

/**
 * Returns the numbers of objects in a snapshot. *Cost:* a walk over all slices.
 *
 * Called for metrics by `observeStore`, for `kpng get status` by the inspection method GetStatus, and for the status
 * page by `LiveState`. Separate, because all three need it.
 */
export function countObjects({ services, slicesByService, nodes }: Snapshot) {
  let sliceCount = 0;
  let endpointCount = 0;
  for (const slices of slicesByService.values()) {
    sliceCount += slices.length;
    for (const { endpoints } of slices) endpointCount += endpoints.length;
  }
  return { serviceCount: services.size, sliceCount, endpointCount, nodeCount: nodes.size };
}
