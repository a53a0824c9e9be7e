import { Counter, Gauge, type Registry } from "prom-client";
import type { ServiceTraffic, TrafficTable } from "./service-traffic.ts";
import type { TrafficLimit } from "./traffic-limits.ts";

interface TrafficSources {
  readonly table: TrafficTable;
  readonly connections: TrafficLimit;
  readonly flows: TrafficLimit;
  /** Number of frontends that could not be opened. */
  readonly closedFrontends: () => number;
  readonly openSockets: () => number;
}

/**
 * Registers the metrics of the traffic. They read the counters of {@link ServiceTraffic} when they are collected.
 *
 * A Service has series only once it has had a connection: a node may serve thousands of Services, of which most have no
 * client here.
 */
export function registerTrafficMetrics(registry: Registry, sources: TrafficSources): void {
  const registers = [registry];
  const { table, connections, flows } = sources;
  const perService = (name: string, help: string, read: (traffic: ServiceTraffic) => number): void => {
    new Counter({
      name,
      help,
      labelNames: ["service"] as const,
      registers,
      collect() {
        this.reset();
        for (const traffic of table.used) this.inc({ service: traffic.service }, read(traffic));
      },
    });
  };
  const gauge = (name: string, help: string, read: () => number): void => {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(read());
      },
    });
  };
  perService("kpng_userspace_connections_total", "TCP connections and UDP flows of a Service", ({ total }) => total);
  perService(
    "kpng_userspace_connect_retries_total",
    "Failed attempts to connect to an endpoint that were followed by another attempt",
    ({ retries }) => retries,
  );
  perService(
    "kpng_userspace_received_bytes_total",
    "Bytes that clients sent to a Service",
    ({ bytesFromClients }) => bytesFromClients,
  );
  perService(
    "kpng_userspace_sent_bytes_total",
    "Bytes that endpoints of a Service sent to clients",
    ({ bytesToClients }) => bytesToClients,
  );
  new Counter({
    name: "kpng_userspace_connections_ended_total",
    help: "Ended or refused TCP connections and UDP flows of a Service, by reason",
    labelNames: ["service", "end"] as const,
    registers,
    collect() {
      this.reset();
      for (const { service, ends } of table.used) for (const [end, count] of ends) this.inc({ service, end }, count);
    },
  });
  new Gauge({
    name: "kpng_userspace_service_connections",
    help: "Open TCP connections and UDP flows of a Service",
    labelNames: ["service"] as const,
    registers,
    collect() {
      this.reset();
      for (const { service, open } of table.used) this.set({ service }, open);
    },
  });
  gauge("kpng_userspace_open_connections", "Open TCP connections of all Services", () => connections.open);
  gauge("kpng_userspace_open_flows", "Open UDP flows of all Services", () => flows.open);
  gauge("kpng_userspace_max_connections", "Limit of open TCP connections", () => connections.limits.total);
  gauge("kpng_userspace_max_flows", "Limit of open UDP flows", () => flows.limits.total);
  gauge("kpng_userspace_listeners", "Sockets that accept connections or datagrams", () => sources.openSockets());
  gauge(
    "kpng_userspace_closed_frontends",
    "Frontends that could not be opened, e.g. because another program uses the port",
    () => sources.closedFrontends(),
  );
}
