import type { Row } from "./panel.ts";
import { node, rate, spread, worst } from "./queries.ts";

export const nodesRow: Row = {
  title: "Nodes: every backend",
  panels: [
    {
      title: "Streams connected",
      description: "Backends with a watcher, without one, with the view from disk, and with a wrong node name.",
      unit: "short",
      queries: [
        { expr: `sum(kpng_backend_stream_connected{${node}})`, legend: "connected" },
        { expr: `count(kpng_backend_stream_connected{${node}} == 0) or vector(0)`, legend: "without watcher" },
        { expr: `sum(kpng_backend_view_from_disk{${node}})`, legend: "from disk" },
        { expr: `count(kpng_backend_node_known{${node}} == 0) or vector(0)`, legend: "unknown node" },
      ],
    },
    {
      title: "Streams lost",
      description:
        "Lost streams, without moves that the watcher asked for; views that had to be sent again as a whole.",
      unit: "ops",
      queries: [
        worst(rate("kpng_backend_reconnects_total", node)),
        worst(rate("kpng_backend_view_divergences_total", node), "{{instance}} diverged"),
      ],
    },
    {
      title: "Older states",
      description: "Refused because the node had a newer one; accepted because no watcher offered a newer one.",
      unit: "ops",
      queries: [
        worst(rate("kpng_backend_older_offers_total", node), "{{instance}} refused"),
        worst(rate("kpng_backend_older_states_accepted_total", node), "{{instance}} accepted"),
      ],
    },
    {
      title: "Revision spread",
      description: "Difference between the most and the least advanced node; meaningless with several watchers.",
      unit: "short",
      queries: [
        { expr: `max(kpng_backend_revision{${node}}) - min(kpng_backend_revision{${node}})`, legend: "revisions" },
      ],
    },
    {
      title: "Syncs",
      description: "Syncs of all backends, by result.",
      unit: "ops",
      queries: [{ expr: `sum by (result) (${rate("kpng_backend_syncs_total", node)})`, legend: "{{result}}" }],
    },
    {
      title: "Sync duration",
      description: "Duration of successful syncs, by backend.",
      unit: "s",
      queries: spread("kpng_backend_sync_duration_seconds", node, "job"),
    },
    {
      title: "Repairs",
      description: "Repairs of changes that another program made to our rules, and failed checks.",
      unit: "ops",
      queries: [
        worst(rate("kpng_iptables_repairs_total", node), "{{instance}} {{ip_family}}"),
        worst(rate("kpng_iptables_drift_checks_total", node, ',result="failed"'), "{{instance}} check failed"),
        ...["nft", "ipvs", "userspace", "ebpf"].flatMap((name) => [
          worst(rate(`kpng_${name}_repairs_total`, node), "{{instance}} {{ip_family}}"),
          worst(rate(`kpng_${name}_drift_checks_total`, node, ',result="failed"'), "{{instance}} check failed"),
        ]),
      ],
    },
    {
      title: "Refused objects",
      description: "kpng-ipvs: addresses and endpoints that the kernel refuses; the log names each with its Service.",
      unit: "short",
      redFrom: 1,
      queries: [worst(`kpng_ipvs_refused_objects{${node}}`, "{{instance}} {{ip_family}}")],
    },
    {
      title: "Stale flows",
      description: "Deleted UDP flows of endpoints that are gone, and failed scans of the conntrack table.",
      unit: "ops",
      queries: [
        {
          expr: `sum by (ip_family) (${rate("kubeproxy_conntrack_reconciler_deleted_entries_total", node)})`,
          legend: "{{ip_family}} deleted",
        },
        { expr: `sum(${rate("kpng_backend_conntrack_failures_total", node)})`, legend: "failed scans" },
        { expr: `count(kpng_backend_conntrack_working{${node}} == 0)`, legend: "nodes whose last scan failed" },
      ],
    },
    {
      title: "Scan of the conntrack table",
      description: "Duration.",
      unit: "s",
      queries: spread("kubeproxy_conntrack_reconciler_sync_duration_seconds", node, "ip_family"),
    },
    {
      title: "Health-check node ports",
      description: "Ports that are open, and ports that cannot be opened.",
      unit: "short",
      queries: [
        { expr: `sum(kpng_backend_health_checks_open{${node}})`, legend: "open" },
        worst(`kpng_backend_health_checks_not_listening{${node}} > 0`, "{{instance}} not listening"),
        { expr: `sum(${rate("kpng_backend_health_check_listen_failures_total", node)})`, legend: "failed attempts/s" },
      ],
    },
    {
      title: "View on disk",
      description: "Age of the saved views, and failed writes.",
      unit: "s",
      queries: [
        worst(`time() - kpng_backend_view_saved_timestamp_seconds{${node}}`),
        worst(rate("kpng_backend_view_writes_total", node, ',result="failed"'), "{{instance}} failed/s"),
      ],
    },
    {
      title: "Failing parts",
      description: "Watchers and backends, by part.",
      unit: "short",
      redFrom: 1,
      queries: [
        { expr: "count by (part) (kpng_part_healthy == 0)", legend: "{{part}} failing" },
        { expr: "count by (part) (kpng_part_ready == 0)", legend: "{{part}} not ready" },
      ],
    },
    {
      title: "Memory",
      description: "Resident memory of the ten largest.",
      unit: "bytes",
      queries: [worst(`process_resident_memory_bytes{${node}}`)],
    },
    {
      title: "CPU",
      description: "The ten busiest; 1 is one core.",
      unit: "short",
      queries: [worst(rate("process_cpu_seconds_total", node))],
    },
  ],
};
