import type { ReadServiceCounts } from "@kpng/backend-kit/traffic/traffic-reporter.ts";
import type { TrafficTable } from "./service-traffic.ts";

/**
 * Returns the counters of all Services in the form in which the kit reports them to the watcher. `backend.ts` passes it
 * on. Packets are 0, because this process relays bytes and sees no packets. Separate from the table, which the data
 * path increments.
 */
export function serviceCountsOf(table: TrafficTable): ReturnType<ReadServiceCounts> {
  return table.used.map(({ service, total, bytesFromClients, bytesToClients }) => [
    service,
    { connections: total, packetsFromClients: 0, bytesFromClients, packetsToClients: 0, bytesToClients },
  ]);
}
