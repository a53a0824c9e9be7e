import type { Snapshot } from "./snapshot.ts";

/** Numbers of objects in a snapshot, for metrics and `kpng get status`. *Cost:* a walk over all slices. */
export function countObjects({ services, slicesByService, nodes }: Snapshot) {
  let sliceCount = 0;
  let endpointCount = 0;
  for (const slices of slicesByService.values()) {
    sliceCount += slices.length;
    for (const { endpoints } of slices) endpointCount += endpoints.length;
  }
  return { serviceCount: services.size, sliceCount, endpointCount, nodeCount: nodes.size };
}
