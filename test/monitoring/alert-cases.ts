/** Series in promtool's notation, with one value a minute: `0x30` is 31 times 0, `0+1x30` counts up. */
type Series = Readonly<Record<string, string>>;

interface AlertCase {
  readonly alert: string;
  /** Series with which the alert fires after half an hour. */
  readonly fires: Series;
  /** Similar series with which it does not fire. */
  readonly silent: Series;
}

/** Adds the labels of a scraped program to a series like `metric` or `metric{label="value"}`. */
function seriesOf(name: string): string {
  const [metric = "", labels = ""] = name.replace("}", "").split("{");
  return `${metric}{${['job="kpng"', 'instance="n1"', labels].filter((part) => part !== "").join()}}`;
}

/** A case of several series. The labels `job` and `instance` are added. */
function several(alert: string, fires: Series, silent: Series): AlertCase {
  const complete = (series: Series): Series =>
    Object.fromEntries(Object.entries(series).map(([name, values]) => [seriesOf(name), values]));
  return { alert, fires: complete(fires), silent: complete(silent) };
}

/** A case in which one series has other values. */
function one(alert: string, name: string, fires: string, silent: string): AlertCase {
  return several(alert, { [name]: fires }, { [name]: silent });
}

/** Returns a histogram with ten measurements a minute between two bounds. */
function between(name: string, [low, high]: readonly [string, string]): Series {
  return { [`${name}{le="${low}"}`]: "0x60", [`${name}{le="${high}"}`]: "0+10x60", [`${name}{le="+Inf"}`]: "0+10x60" };
}

const queued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
const synced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
const programming = "kubeproxy_network_programming_duration_seconds_bucket";
const restoreFailures = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total";
const progress = "kpng_source_last_progress_timestamp_seconds";

/** All alerts. The series begin in 1970, so a constant timestamp of 0 is half an hour ago. */
export const alertCases: readonly AlertCase[] = [
  one("KpngNoWatcher", "kpng_store_synced", "0x60", "1x60"),
  one("KpngWatcherNotSynced", "kpng_store_synced", "0x60", "0x28 1x60"),
  one("KpngSourceDisconnected", 'kpng_source_connected{kind="slices"}', "1x5 0x60", "1x26 0x60"),
  one("KpngSourceSilent", `${progress}{kind="slices"}`, "60x60", "0+60x60"),
  one("KpngWatcherStale", "kpng_source_stale", "0x20 1x60", "0x28 1x1 0x60"),
  one("KpngCertificateExpires", "kpng_certificate_expiry_timestamp_seconds", "1000000x60", "2000000x60"),
  one("KpngBadObjects", 'kpng_source_invalid_total{kind="services",skipped="object"}', "0x20 1x60", "7x60"),
  several(
    "KpngDeletionsHeld",
    { 'kpng_source_lists_total{kind="slices",result="braked"}': "0x20 1x60" },
    {
      'kpng_source_lists_total{kind="slices",result="braked"}': "1x60",
      'kpng_source_lists_total{kind="slices",result="ok"}': "0x20 1x60",
    },
  ),
  one("KpngErrorsFound", 'kpng_watcher_findings{severity="error"}', "1x60", "1x20 0x5 1x10 0x60"),
  one("KpngNodesFailing", "kpng_subscribers_failing", "0x20 1x60", "0x20 1x3 0x3 1x60"),
  one("KpngNodesBehind", "kpng_oldest_unapplied_seconds", "0x20 0+60x60", "50x60"),
  several(
    "KpngConvergenceSlow",
    between("kpng_apply_seconds_bucket", ["10", "30"]),
    between("kpng_apply_seconds_bucket", ["0.1", "1"]),
  ),
  several(
    "KpngStreamsRefused",
    { 'kpng_refused_total{reason="calls"}': "0+100x60" },
    { 'kpng_refused_total{reason="calls"}': "0x25 0+100x60", 'kpng_refused_total{reason="connections"}': "0+100x60" },
  ),
  several(
    "KpngWatcherHeldUp",
    { nodejs_eventloop_lag_p99_seconds: "0.9x60", kpng_store_synced: "1x60" },
    // A Node.js program that is no watcher.
    { nodejs_eventloop_lag_p99_seconds: "0.9x60" },
  ),
  one("KpngPartFailing", 'kpng_part_healthy{part="iptables"}', "1x10 0x60", "1x60"),
  one("KpngBackendWithoutWatcher", "kpng_backend_stream_connected", "1x10 0x60", "1x26 0x2 1x60"),
  one("KpngBackendServesFromDisk", "kpng_backend_view_from_disk", "1x60", "1x5 0x60"),
  several(
    "KpngBackendSyncsFail",
    { 'kpng_backend_syncs_total{result="failed"}': "0+2x60" },
    { 'kpng_backend_syncs_total{result="failed"}': "0x24 1x60", 'kpng_backend_syncs_total{result="ok"}': "0+2x60" },
  ),
  several("KpngRulesStale", { [queued]: "120x60", [synced]: "60x60" }, { [queued]: "120x60", [synced]: "121x60" }),
  one("KpngRestoreFailures", restoreFailures, "0+1x60", "0x20 1x60"),
  several("KpngNetworkProgrammingSlow", between(programming, ["30", "60"]), between(programming, ["1", "2"])),
  one("KpngRulesRepaired", "kpng_backend_repairs_total", "0+1x60", "0x20 1x60"),
  several(
    "KpngDriftUnknown",
    { 'kpng_backend_drift_checks_total{result="failed"}': "0+1x60" },
    {
      'kpng_backend_drift_checks_total{result="failed"}': "0x20 1x60",
      'kpng_backend_drift_checks_total{result="ok"}': "0+2x60",
    },
  ),
  one("KpngConntrackNotCleaned", "kpng_backend_conntrack_failures_total", "0+1x60", "0x20 1x60"),
  one("KpngHealthCheckPortTaken", "kpng_backend_health_checks_not_listening", "0x5 1x60", "1x28 0x60"),
  one("KpngObjectsRefused", "kpng_ipvs_refused_objects", "0x5 1x60", "1x28 0x60"),
  one("KpngForeignClaims", 'kpng_backend_refused_claims{service="a/rival"}', "0x5 2x60", "2x28 0x60"),
  several(
    "KpngViewNotSaved",
    { 'kpng_backend_view_writes_total{result="failed"}': "0+1x60" },
    { 'kpng_backend_view_writes_total{result="ok"}': "0+1x60" },
  ),
  one("KpngViewDiverged", "kpng_backend_view_divergences_total", "0x20 1x60", "0x60"),
];
