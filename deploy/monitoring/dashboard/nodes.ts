import type { Row } from "./panel.ts";
import { node, rate, spread, worst } from "./queries.ts";

export const nodesRow: Row = {
  title: "Nodes: every backend",
  panels: [
    {
      title: "Streams connected",
      description: "Backends with and without a watcher, and those that serve what they had saved.",
      unit: "short",
      queries: [
        { expr: `sum(kpng_backend_stream_connected{${node}})`, legend: "connected" },
        { expr: `count(kpng_backend_stream_connected{${node}} == 0) or vector(0)`, legend: "without watcher" },
        { expr: `sum(kpng_backend_view_from_disk{${node}})`, legend: "from disk" },
      ],
    },
    {
      title: "Streams lost",
      description:
        "Lost and opened again, moves that the watcher asked for not among them; views that had to be sent anew.",
      unit: "ops",
      queries: [
        worst(rate("kpng_backend_reconnects_total", node)),
        worst(rate("kpng_backend_view_divergences_total", node), "{{instance}} diverged"),
      ],
    },
    {
      title: "Revision spread",
      description: "Between the node that is ahead and the one that is behind; of several watchers it says nothing.",
      unit: "short",
      queries: [
        { expr: `max(kpng_backend_revision{${node}}) - min(kpng_backend_revision{${node}})`, legend: "revisions" },
      ],
    },
    {
      title: "Syncs",
      description: "Of every backend, by result.",
      unit: "ops",
      queries: [{ expr: `sum by (result) (${rate("kpng_backend_syncs_total", node)})`, legend: "{{result}}" }],
    },
    {
      title: "Sync duration",
      description: "Of every backend.",
      unit: "s",
      queries: spread("kpng_backend_sync_duration_seconds", node, "job"),
    },
    {
      title: "Repairs",
      description: "Times that somebody else's change to our rules was undone, and looks that failed.",
      unit: "ops",
      queries: [
        worst(rate("kpng_iptables_repairs_total", node), "{{instance}} {{ip_family}}"),
        worst(rate("kpng_iptables_drift_checks_total", node, ',result="failed"'), "{{instance}} could not look"),
      ],
    },
    {
      title: "Stale flows",
      description: "UDP flows that led to endpoints that are gone, and looks through conntrack that failed.",
      unit: "ops",
      queries: [
        {
          expr: `sum by (ip_family) (${rate("kubeproxy_conntrack_reconciler_deleted_entries_total", node)})`,
          legend: "{{ip_family}} deleted",
        },
        { expr: `sum(${rate("kpng_backend_conntrack_failures_total", node)})`, legend: "looks that failed" },
        { expr: `count(kpng_backend_conntrack_working{${node}} == 0)`, legend: "nodes whose last look failed" },
      ],
    },
    {
      title: "Look through conntrack",
      description: "How long one takes.",
      unit: "s",
      queries: spread("kubeproxy_conntrack_reconciler_sync_duration_seconds", node, "ip_family"),
    },
    {
      title: "Health-check node ports",
      description: "Answered, and those that cannot be opened.",
      unit: "short",
      queries: [
        { expr: `sum(kpng_backend_health_checks_open{${node}})`, legend: "open" },
        worst(`kpng_backend_health_checks_not_listening{${node}} > 0`, "{{instance}} not listening"),
        { expr: `sum(${rate("kpng_backend_health_check_listen_failures_total", node)})`, legend: "failed tries/s" },
      ],
    },
    {
      title: "View on disk",
      description: "Age of the saved views, and writes that failed.",
      unit: "s",
      queries: [
        worst(`time() - kpng_backend_view_saved_timestamp_seconds{${node}}`),
        worst(rate("kpng_backend_view_writes_total", node, ',result="failed"'), "{{instance}} failed/s"),
      ],
    },
    {
      title: "Shadow mode",
      description: "Packets that kube-proxy's rules and ours treat in different ways.",
      unit: "short",
      redFrom: 1,
      queries: [
        worst(`kpng_shadow_differences{${node}}`, "{{instance}} {{ip_family}}"),
        { expr: `sum by (result) (${rate("kpng_shadow_looks_total", node)})`, legend: "looks/s {{result}}" },
      ],
    },
    {
      title: "Parts that fail",
      description: "By part, of watchers and backends.",
      unit: "short",
      redFrom: 1,
      queries: [
        { expr: "count by (part) (kpng_part_healthy == 0)", legend: "{{part}} failing" },
        { expr: "count by (part) (kpng_part_ready == 0)", legend: "{{part}} not ready" },
      ],
    },
    {
      title: "Memory",
      description: "Resident; the ten largest.",
      unit: "bytes",
      queries: [worst(`process_resident_memory_bytes{${node}}`)],
    },
    {
      title: "CPU",
      description: "1 is one core; the ten busiest.",
      unit: "short",
      queries: [worst(rate("process_cpu_seconds_total", node))],
    },
  ],
};
