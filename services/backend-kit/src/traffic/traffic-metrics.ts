import { Counter, type Registry } from "prom-client";
import type { ServiceCounts, ServiceTrafficCounts } from "./service-counts.ts";

/**
 * Registers the metrics of the traffic of Services, for `ServiceTraffic`. They read the counters when they are
 * collected: updating a metric with labels would cost a microsecond for each flow. So they are separate from the
 * counters (`ServiceTrafficCounts`). Returns the counter of restarts, which the caller must increment.
 */
export function registerServiceTraffic(registry: Registry, counts: ServiceTrafficCounts): Counter {
  const registers = [registry];
  const perService = (
    name: string,
    help: string,
    read: (of: ServiceCounts) => Readonly<Record<string, number>>,
  ): void => {
    new Counter({
      name,
      help,
      labelNames: ["service", "direction"] as const,
      registers,
      collect() {
        this.reset();
        for (const [service, of] of counts.all) {
          for (const [direction, value] of Object.entries(read(of))) this.inc({ service, direction }, value);
        }
      },
    });
  };
  new Counter({
    name: "kpng_service_connections_total",
    help: "Connections and flows to a Service that began on this node; only with --service-traffic",
    labelNames: ["service"] as const,
    registers,
    collect() {
      this.reset();
      for (const [service, { connections }] of counts.all) this.inc({ service }, connections);
    },
  });
  perService(
    "kpng_service_packets_total",
    "Packets of ended connections of a Service, by direction; only with --service-traffic",
    ({ packetsFromClients, packetsToClients }) => ({ received: packetsFromClients, sent: packetsToClients }),
  );
  perService(
    "kpng_service_bytes_total",
    "Bytes of ended connections of a Service, with IP headers, by direction; only with --service-traffic",
    ({ bytesFromClients, bytesToClients }) => ({ received: bytesFromClients, sent: bytesToClients }),
  );
  return new Counter({
    name: "kpng_service_traffic_restarts_total",
    help: "Ends of the program that reports connections: those in the meantime are not counted",
    registers,
  });
}
