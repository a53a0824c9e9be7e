import type { ReadServiceCounts } from "@kpng/backend-kit/traffic/traffic-reporter.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/**
 * Returns the counters of Services in the form that the kit reports: the sum of the connections in both families.
 * Packets and bytes are 0, because programs see the first packet of a flow only, or none: sockets send the rest to the
 * endpoint. Undefined if a family is not known yet. `backend.ts` passes it on. Pure.
 */
export function countServices(
  families: readonly (ReadonlyMap<ServiceKey, number> | undefined)[],
): ReturnType<ReadServiceCounts> {
  if (families.includes(undefined)) return undefined;
  const sums = new Map<ServiceKey, number>();
  for (const [key, count] of families.flatMap((family) => [...(family ?? [])]))
    sums.set(key, (sums.get(key) ?? 0) + count);
  const uncounted = { packetsFromClients: 0, bytesFromClients: 0, packetsToClients: 0, bytesToClients: 0 };
  return [...sums].map(([key, connections]) => [key, { connections, ...uncounted }]);
}
