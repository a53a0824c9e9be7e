/** Series in promtool's notation, with one value per minute: `0x30` is 31 times 0, `0+1x30` counts up. */
export interface AlertCase {
  readonly alert: string;
  /** Series with which the alert fires after half an hour. */
  readonly fires: Readonly<Record<string, string>>;
  /** Similar series with which it does not fire. */
  readonly silent: Readonly<Record<string, string>>;
}

const on = 'job="kpng",instance="n1"';
const v4 = `${on},ip_family="IPv4"`;

/** Returns a histogram with ten measurements a minute below the first of two bounds, or between them. */
function buckets(name: string, labels: string, [low, high]: readonly [string, string], where: "below" | "between") {
  return {
    [`${name}_bucket{${labels},le="${low}"}`]: where === "below" ? "0+10x60" : "0x60",
    [`${name}_bucket{${labels},le="${high}"}`]: "0+10x60",
    [`${name}_bucket{${labels},le="+Inf"}`]: "0+10x60",
  };
}

/** All alerts. The tests start at 1970, so a constant timestamp of 0 is half an hour ago. */
export const alertCases: readonly AlertCase[] = [
  {
    alert: "KpngNoWatcher",
    fires: { [`kpng_store_synced{${on}}`]: "0x60" },
    silent: { [`kpng_store_synced{${on}}`]: "1x60" },
  },
  {
    alert: "KpngWatcherNotSynced",
    fires: { [`kpng_store_synced{${on}}`]: "0x60" },
    silent: { [`kpng_store_synced{${on}}`]: "0x28 1x60" },
  },
  {
    alert: "KpngSourceDisconnected",
    fires: { [`kpng_source_connected{${on},source="kube",kind="slices"}`]: "1x5 0x60" },
    silent: { [`kpng_source_connected{${on},source="kube",kind="slices"}`]: "1x26 0x60" },
  },
  {
    alert: "KpngSourceSilent",
    fires: { [`kpng_source_last_progress_timestamp_seconds{${on},kind="slices"}`]: "60x60" },
    silent: {
      [`kpng_source_last_progress_timestamp_seconds{${on},kind="slices"}`]: "0+60x60",
      [`kpng_source_last_progress_timestamp_seconds{${on},kind="servicecidrs"}`]: "60x60",
    },
  },
  {
    alert: "KpngWatcherStale",
    fires: { [`kpng_source_stale{${on}}`]: "0x20 1x60" },
    silent: { [`kpng_source_stale{${on}}`]: "0x28 1x1 0x60" },
  },
  {
    alert: "KpngCertificateExpires",
    fires: { [`kpng_certificate_expiry_timestamp_seconds{${on},use="serving"}`]: "1000000x60" },
    silent: { [`kpng_certificate_expiry_timestamp_seconds{${on},use="serving"}`]: "2000000x60" },
  },
  {
    alert: "KpngBadObjects",
    fires: { [`kpng_source_bad_objects_total{${on},kind="services"}`]: "0x20 1x60" },
    silent: {
      [`kpng_source_bad_objects_total{${on},kind="services"}`]: "7x60",
      [`kpng_source_bad_parts_total{${on},kind="services"}`]: "7x60",
      [`kpng_source_errors_total{${on}}`]: "0x60",
    },
  },
  {
    alert: "KpngDeletionsHeld",
    fires: { [`kpng_source_lists_total{${on},kind="slices",result="braked"}`]: "0x20 1x60" },
    silent: {
      [`kpng_source_lists_total{${on},kind="slices",result="braked"}`]: "1x60",
      [`kpng_source_lists_total{${on},kind="slices",result="ok"}`]: "0x20 1x60",
    },
  },
  {
    alert: "KpngNodesFailing",
    fires: { [`kpng_subscribers_failing{${on}}`]: "0x20 1x60" },
    silent: { [`kpng_subscribers_failing{${on}}`]: "0x20 1x3 0x3 1x60" },
  },
  {
    alert: "KpngNodesBehind",
    fires: { [`kpng_oldest_unapplied_seconds{${on}}`]: "0x20 0+60x60" },
    silent: { [`kpng_oldest_unapplied_seconds{${on}}`]: "50x60" },
  },
  {
    alert: "KpngConvergenceSlow",
    fires: buckets("kpng_convergence_seconds", on, ["10", "30"], "between"),
    silent: buckets("kpng_convergence_seconds", on, ["1", "30"], "below"),
  },
  {
    alert: "KpngStreamsRefused",
    fires: { [`kpng_admission_refused_total{${on},view="whole"}`]: "0+100x60" },
    silent: { [`kpng_admission_refused_total{${on},view="whole"}`]: "0x25 0+100x60" },
  },
  {
    alert: "KpngWatcherHeldUp",
    fires: { [`nodejs_eventloop_lag_p99_seconds{${on}}`]: "0.9x60", [`kpng_store_synced{${on}}`]: "1x60" },
    // Another Node.js program is not a watcher.
    silent: { 'nodejs_eventloop_lag_p99_seconds{job="other"}': "0.9x60", [`kpng_store_synced{${on}}`]: "1x60" },
  },
  {
    alert: "KpngPartFailing",
    fires: { [`kpng_part_healthy{${on},part="iptables"}`]: "1x10 0x60" },
    silent: { [`kpng_part_healthy{${on},part="iptables"}`]: "1x60" },
  },
  {
    alert: "KpngBackendWithoutWatcher",
    fires: { [`kpng_backend_stream_connected{${on}}`]: "1x10 0x60" },
    silent: { [`kpng_backend_stream_connected{${on}}`]: "1x26 0x2 1x60" },
  },
  {
    alert: "KpngBackendServesFromDisk",
    fires: { [`kpng_backend_view_from_disk{${on}}`]: "1x60" },
    silent: { [`kpng_backend_view_from_disk{${on}}`]: "1x5 0x60" },
  },
  {
    alert: "KpngBackendSyncsFail",
    fires: { [`kpng_backend_syncs_total{${on},result="failed"}`]: "0+2x60" },
    silent: {
      [`kpng_backend_syncs_total{${on},result="failed"}`]: "0x24 1x60",
      [`kpng_backend_syncs_total{${on},result="ok"}`]: "0+2x60",
    },
  },
  {
    alert: "KpngRulesStale",
    fires: {
      [`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{${v4}}`]: "120x60",
      [`kubeproxy_sync_proxy_rules_last_timestamp_seconds{${v4}}`]: "60x60",
    },
    silent: {
      [`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{${v4}}`]: "120x60",
      [`kubeproxy_sync_proxy_rules_last_timestamp_seconds{${v4}}`]: "121x60",
    },
  },
  {
    alert: "KpngRestoreFailures",
    fires: { [`kubeproxy_sync_proxy_rules_iptables_restore_failures_total{${v4}}`]: "0+1x60" },
    silent: { [`kubeproxy_sync_proxy_rules_iptables_restore_failures_total{${v4}}`]: "0x20 1x60" },
  },
  {
    alert: "KpngNetworkProgrammingSlow",
    fires: buckets("kubeproxy_network_programming_duration_seconds", v4, ["30", "60"], "between"),
    silent: buckets("kubeproxy_network_programming_duration_seconds", v4, ["2", "60"], "below"),
  },
  {
    alert: "KpngRulesRepaired",
    fires: { [`kpng_iptables_repairs_total{${v4}}`]: "0+1x60" },
    silent: { [`kpng_iptables_repairs_total{${v4}}`]: "0x20 1x60" },
  },
  {
    alert: "KpngDriftUnknown",
    fires: { [`kpng_iptables_drift_checks_total{${on},result="failed"}`]: "0+1x60" },
    silent: {
      [`kpng_iptables_drift_checks_total{${on},result="failed"}`]: "0x20 1x60",
      [`kpng_iptables_drift_checks_total{${on},result="ok"}`]: "0+2x60",
    },
  },
  {
    alert: "KpngConntrackNotCleaned",
    fires: {
      [`kpng_backend_conntrack_working{${on}}`]: "0x60",
      [`kpng_backend_conntrack_failures_total{${on}}`]: "0+1x60",
    },
    // Before its first check it has neither succeeded nor failed.
    silent: {
      [`kpng_backend_conntrack_working{${on}}`]: "0x60",
      [`kpng_backend_conntrack_failures_total{${on}}`]: "0x60",
    },
  },
  {
    alert: "KpngHealthCheckPortTaken",
    fires: { [`kpng_backend_health_checks_not_listening{${on}}`]: "0x5 1x60" },
    silent: { [`kpng_backend_health_checks_not_listening{${on}}`]: "1x28 0x60" },
  },
  {
    alert: "KpngObjectsRefused",
    fires: { [`kpng_ipvs_refused_objects{${v4}}`]: "0x5 1x60" },
    silent: { [`kpng_ipvs_refused_objects{${v4}}`]: "1x28 0x60" },
  },
  {
    alert: "KpngForeignClaims",
    fires: { [`kpng_backend_refused_claims{${on},service="a/rival"}`]: "0x5 2x60" },
    silent: { [`kpng_backend_refused_claims{${on},service="a/rival"}`]: "2x28 0x60" },
  },
  {
    alert: "KpngViewNotSaved",
    fires: { [`kpng_backend_view_writes_total{${on},result="failed"}`]: "0+1x60" },
    silent: { [`kpng_backend_view_writes_total{${on},result="ok"}`]: "0+1x60" },
  },
  {
    alert: "KpngViewDiverged",
    fires: { [`kpng_backend_view_divergences_total{${on}}`]: "0x20 1x60" },
    silent: { [`kpng_backend_view_divergences_total{${on}}`]: "0x60" },
  },
];
