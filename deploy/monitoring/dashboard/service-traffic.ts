import type { Row } from "./panel.ts";
import { node, rate, worst } from "./queries.ts";

/** Traffic of Services, by events of conntrack; empty without `--service-traffic`. */
export const serviceTraffic: Row = {
  title: "Nodes: traffic of Services (--service-traffic)",
  panels: [
    {
      title: "New connections of Services",
      description: "Connections and flows that began; the ten busiest Services and nodes.",
      unit: "ops",
      queries: [worst(rate("kpng_service_connections_total", node), "{{instance}} {{service}}")],
    },
    {
      title: "Packets and bytes of Services",
      description: "Of connections that ended; the ten busiest Services and nodes.",
      unit: "Bps",
      queries: [
        worst(rate("kpng_service_bytes_total", node), "{{instance}} {{service}} {{direction}} bytes"),
        worst(rate("kpng_service_packets_total", node), "{{instance}} {{service}} {{direction}} packets"),
      ],
    },
    {
      title: "Restarts of the traffic count",
      description: "The program that reports connections ended, and some are not counted; the log says why.",
      unit: "short",
      redFrom: 1,
      queries: [worst(`increase(kpng_service_traffic_restarts_total{${node}}[$__rate_interval])`)],
    },
  ],
};
