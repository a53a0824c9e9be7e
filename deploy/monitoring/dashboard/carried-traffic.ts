import type { Row } from "./panel.ts";
import { each, node, rate, worst } from "./queries.ts";

/** The traffic that kpng-userspace carries; empty with proxies that have rules. */
export const carriedTraffic: Row = {
  title: "Nodes: traffic of kpng-userspace",
  panels: [
    {
      title: "Connections",
      description: "New TCP connections and UDP flows, and attempts to connect that failed; the ten busiest Services.",
      unit: "ops",
      queries: [
        worst(rate("kpng_userspace_connections_total", node), "{{instance}} {{service}}"),
        worst(rate("kpng_userspace_connect_retries_total", node), "{{instance}} {{service}} retries"),
      ],
    },
    {
      title: "Bytes",
      description: "Bytes from clients and to clients; the ten busiest Services.",
      unit: "Bps",
      queries: [
        worst(rate("kpng_userspace_received_bytes_total", node), "{{instance}} {{service}} received"),
        worst(rate("kpng_userspace_sent_bytes_total", node), "{{instance}} {{service}} sent"),
      ],
    },
    {
      title: "Ends other than by both sides",
      description: "Connections and flows that ended or were turned away, by reason.",
      unit: "ops",
      queries: [
        worst(
          rate("kpng_userspace_connections_ended_total", node, ',end!="closed"'),
          "{{instance}} {{service}} {{end}}",
        ),
      ],
    },
    {
      title: "Open connections and flows",
      description: "Of all Services with their limits, and of the ten Services with the most.",
      unit: "short",
      queries: [
        each("kpng_userspace_open_connections", node),
        each("kpng_userspace_max_connections", node),
        each("kpng_userspace_open_flows", node),
        each("kpng_userspace_max_flows", node),
        worst(`kpng_userspace_service_connections{${node}}`, "{{instance}} {{service}}"),
      ],
    },
    {
      title: "Listeners",
      description: "Sockets that accept connections or datagrams.",
      unit: "short",
      queries: [each("kpng_userspace_listeners", node)],
    },
    {
      title: "Closed frontends",
      description: "Frontends that could not be opened, e.g. because another program has the port; the log names them.",
      unit: "short",
      redFrom: 1,
      queries: [each("kpng_userspace_closed_frontends", node)],
    },
  ],
};
