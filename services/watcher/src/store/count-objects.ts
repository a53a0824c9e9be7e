import type { Snapshot } from "./snapshot.ts";

/**
 * Returns the numbers of objects in a snapshot. `observeStore` calls it for metrics, and the inspection method
 * GetStatus for `kpng get status`. *Cost:* a walk over all slices. Separate from metrics and inspection, because both
 * need it.
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
