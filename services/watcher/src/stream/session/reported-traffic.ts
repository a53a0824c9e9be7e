import type { ServiceTraffic, TrafficReport } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/** Names of the counters and rates of a Service, in the order of {@link ReportedTraffic.values}. */
export const trafficFields = [
  "Connections",
  "PacketsFromClients",
  "PacketsToClients",
  "BytesFromClients",
  "BytesToClients",
  "MilliConnectionsPerSecond",
  "BytesPerSecond",
] as const satisfies readonly (keyof ServiceTraffic)[];

/** Maximum number of entries: 100 Services, and the sum of the others. `openLocalWatch` refuses a report with more. */
export const maxEntries = 101;

/**
 * The newest report of one stream about the traffic of Services on its node. A node can report any names: those that
 * are not Services of the cluster count as "others", and repeated names are ignored.
 *
 * `Subscriber` keeps it, and the inspection method ListTraffic adds up those of all nodes. Separate from `Subscriber`,
 * because it only limits and stores the numbers.
 *
 * *Bound:* {@link maxEntries} names of Services, and seven numbers up to 2^53 for each. Numbers in one array, because
 * every node may have 100 Services.
 */
export class ReportedTraffic {
  /** "" for the Services without an entry of their own. */
  readonly services: readonly (ServiceKey | "")[];
  /** {@link trafficFields} of each Service, one after the other. */
  readonly values: Float64Array;

  /** `isService` tells whether the cluster has a Service. */
  constructor({ Services: entries }: TrafficReport, isService: (key: string) => boolean) {
    const rows = new Map<string, number[]>();
    for (const entry of entries) {
      const key = isService(entry.Service) ? entry.Service : "";
      const row = rows.get(key);
      if (row !== undefined && key !== "") continue;
      rows.set(
        key,
        trafficFields.map((field, index) =>
          Math.min((row?.[index] ?? 0) + Number(entry[field]), Number.MAX_SAFE_INTEGER),
        ),
      );
    }
    this.services = [...rows.keys()] as (ServiceKey | "")[];
    this.values = Float64Array.from([...rows.values()].flat());
  }
}

/**
 * Returns the minimum time between two reports of one stream, in milliseconds, if `openCount` streams are open: 100
 * reports a second, however many nodes report. `syncMarker` sends it.
 */
export function trafficIntervalFor(openCount: number): number {
  return Math.max(2_000, openCount * 10);
}
