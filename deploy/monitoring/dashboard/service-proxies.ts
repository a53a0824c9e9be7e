import type { Row } from "./panel.ts";
import { node, rate, spread, worst } from "./queries.ts";

export const backends: Row = {
  title: "Nodes: service proxies",
  panels: [
    {
      title: "Sync",
      description: "Duration of successful syncs, over all selected nodes.",
      unit: "s",
      queries: spread("kubeproxy_sync_proxy_rules_duration_seconds", node, "ip_family"),
    },
    {
      title: "Full and partial syncs",
      description: "Full: all rules were compared, after a start, a failure or a lost stream.",
      unit: "ops",
      queries: [
        {
          expr: `sum by (ip_family) (${rate("kubeproxy_sync_full_proxy_rules_duration_seconds_count", node)})`,
          legend: "{{ip_family}} full",
        },
        {
          expr: `sum by (ip_family) (${rate("kubeproxy_sync_partial_proxy_rules_duration_seconds_count", node)})`,
          legend: "{{ip_family}} partial",
        },
      ],
    },
    {
      title: "Network programming",
      description: "Time from the change of a pod to the rule: the service level that Kubernetes defines.",
      unit: "s",
      queries: spread("kubeproxy_network_programming_duration_seconds", node, "ip_family"),
    },
    {
      title: "Pending changes",
      description: "Time since a sync was requested that has not succeeded; the ten worst nodes.",
      unit: "s",
      redFrom: 60,
      queries: [
        worst(
          `clamp_min(kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{${node}} - kubeproxy_sync_proxy_rules_last_timestamp_seconds{${node}}, 0)`,
          "{{instance}} {{ip_family}}",
        ),
      ],
    },
    {
      title: "Endpoint and service changes",
      description: "Changes from the watcher, and changes that wait for the next sync.",
      unit: "short",
      queries: [
        {
          expr: `sum(${rate("kubeproxy_sync_proxy_rules_endpoint_changes_total", node)})`,
          legend: "endpoints/s",
        },
        { expr: `sum(${rate("kubeproxy_sync_proxy_rules_service_changes_total", node)})`, legend: "Services/s" },
        { expr: `sum(kubeproxy_sync_proxy_rules_endpoint_changes_pending{${node}})`, legend: "endpoints waiting" },
        { expr: `sum(kubeproxy_sync_proxy_rules_service_changes_pending{${node}})`, legend: "Services waiting" },
      ],
    },
    {
      title: "Rules",
      description: "Installed rules, and rules that the last sync wrote; the ten nodes with the most.",
      unit: "short",
      queries: [
        worst(`kubeproxy_sync_proxy_rules_iptables_total{${node}}`, "{{instance}} {{table}} {{ip_family}}"),
        worst(`kubeproxy_sync_proxy_rules_iptables_last{${node}}`, "{{instance}} {{table}} {{ip_family}} last"),
      ],
    },
    {
      title: "Rejected by the kernel",
      description: "Failed syncs; the previous rules stay installed.",
      unit: "ops",
      queries: [
        worst(rate("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", node), "{{instance}} {{ip_family}}"),
        worst(
          rate("kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", node),
          "{{instance}} {{ip_family}} partial syncs",
        ),
      ],
    },
    {
      title: "Service ports without local endpoint",
      description: "Ports with traffic policy Local that drop packets on a node; normal for external ones.",
      unit: "short",
      queries: [
        {
          expr: `max by (traffic_policy) (kubeproxy_sync_proxy_rules_no_local_endpoints_total{${node}})`,
          legend: "{{traffic_policy}}, most on one node",
        },
      ],
    },
    {
      title: "Claims of others' addresses",
      description: "Addresses with port that a Service claims and another one has: the other one is served.",
      unit: "short",
      queries: [{ expr: `max by (service) (kpng_backend_refused_claims{${node}})`, legend: "{{service}}" }],
    },
    {
      title: "Health probes",
      description: "Responses of /healthz and /livez other than 200.",
      unit: "ops",
      queries: [
        worst(rate("kubeproxy_proxy_healthz_total", node, ',code!="200"'), "{{instance}} healthz"),
        worst(rate("kubeproxy_proxy_livez_total", node, ',code!="200"'), "{{instance}} livez"),
      ],
    },
  ],
};
