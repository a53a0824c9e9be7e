import type { Family } from "@kpng/model/address.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type ServicePort } from "@kpng/model/service.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { ChangeCounts, SyncObserver, SyncTimes, SyncUpdate, ViewUpdate } from "../types/sync-update.ts";

interface ProxyMetricsOptions {
  readonly registry: Registry;
  readonly families: readonly Family[];
  readonly now?: (() => number) | undefined;
}

/**
 * kube-proxy's metrics with its names and buckets, so that dashboards and alerts made for kube-proxy also work here.
 *
 * The metrics of endpoint and service changes count endpoints and Services that were put or deleted; kube-proxy counts
 * updates of EndpointSlices and Services instead.
 *
 * *Source:* kube-proxy `metrics/metrics.go`.
 */
export class ProxyMetrics implements SyncObserver {
  readonly #options: ProxyMetricsOptions;
  readonly #metrics: ReturnType<typeof createMetrics>;
  /** View of the last successful sync. */
  #view: NodeView | undefined;

  constructor(options: ProxyMetricsOptions) {
    this.#options = options;
    this.#metrics = createMetrics(options.registry);
    const view = () => this.#view;
    new Gauge({
      name: `${prefix}no_local_endpoints_total`,
      help: "Number of services with a Local traffic policy and no endpoints",
      labelNames: ["traffic_policy", "ip_family"] as const,
      registers: [options.registry],
      // Ports are counted when the metrics are read: after each sync, that would cost as much as a small sync.
      collect() {
        const newest = view();
        if (newest === undefined) return;
        for (const family of options.families) {
          const counts = countNoLocalEndpoints(newest, family);
          for (const traffic_policy of ["internal", "external"] as const) {
            this.set({ ip_family: familyLabels[family], traffic_policy }, counts[traffic_policy]);
          }
        }
      },
    });
  }

  queued({ counts }: ViewUpdate): void {
    this.#addPending(counts);
    this.#metrics.serviceChanges.inc(counts.services);
    this.#metrics.endpointChanges.inc(counts.endpoints);
    for (const family of this.#options.families) {
      this.#metrics.lastQueued.set({ ip_family: familyLabels[family] }, this.#nowSeconds());
    }
  }

  /** The sync that starts includes the pending changes. */
  started(): void {
    this.#metrics.serviceChangesPending.set(0);
    this.#metrics.endpointChangesPending.set(0);
  }

  settled(): void {
    this.started();
  }

  succeeded({ view, mode, arrival }: SyncUpdate, { startedAtMs, endedAtMs }: SyncTimes): void {
    const { sync, fullSync, partialSync, lastSync, networkProgramming } = this.#metrics;
    const seconds = (endedAtMs - startedAtMs) / 1_000;
    for (const family of this.#options.families) {
      const labels = { ip_family: familyLabels[family] };
      sync.observe(labels, seconds);
      (mode === "full" ? fullSync : partialSync).observe(labels, seconds);
      lastSync.set(labels, this.#nowSeconds());
      for (const triggeredAtMs of arrival?.triggeredAtMs ?? []) {
        networkProgramming.observe(labels, Math.max(0, this.#nowSeconds() - triggeredAtMs / 1_000));
      }
    }
    this.#view = view;
  }

  failed({ counts }: SyncUpdate): void {
    this.#addPending(counts);
  }

  #addPending({ services, endpoints }: ChangeCounts): void {
    this.#metrics.serviceChangesPending.inc(services);
    this.#metrics.endpointChangesPending.inc(endpoints);
  }

  #nowSeconds(): number {
    return (this.#options.now ?? Date.now)() / 1_000;
  }
}

/**
 * Bucket limits: 0, 0.25, 0.5; 1 to 59 in steps of 1, 60 to 115 in steps of 5, 120 to 300 in steps of 30. *Unit:*
 * seconds.
 *
 * The limit 0 comes from MergeBuckets in component-base, which kube-proxy uses.
 */
const programmingBuckets: readonly number[] = [
  0,
  0.25,
  0.5,
  ...Array.from({ length: 59 }, (_, index) => 1 + index),
  ...Array.from({ length: 12 }, (_, index) => 60 + 5 * index),
  ...Array.from({ length: 7 }, (_, index) => 120 + 30 * index),
];

const prefix = "kubeproxy_sync_proxy_rules_";

function createMetrics(registry: Registry) {
  const registers = [registry];
  const labelNames = ["ip_family"] as const;
  const histogram = (name: string, help: string, buckets = shortBuckets) =>
    new Histogram({ name: `kubeproxy_${name}`, help, labelNames, buckets: [...buckets], registers });
  const gauge = (name: string, help: string) => new Gauge({ name: `${prefix}${name}`, help, registers });
  const timestamp = (name: string, help: string) =>
    new Gauge({ name: `${prefix}${name}`, help, labelNames, registers });
  const counter = (name: string, help: string) => new Counter({ name: `${prefix}${name}`, help, registers });
  const latency = "SyncProxyRules latency in seconds";
  const programming = "In Cluster Network Programming Latency in seconds";
  return {
    sync: histogram("sync_proxy_rules_duration_seconds", latency),
    fullSync: histogram("sync_full_proxy_rules_duration_seconds", `${latency} for full resyncs`),
    partialSync: histogram("sync_partial_proxy_rules_duration_seconds", `${latency} for partial resyncs`),
    networkProgramming: histogram("network_programming_duration_seconds", programming, programmingBuckets),
    lastSync: timestamp("last_timestamp_seconds", "The last time proxy rules were successfully synced"),
    lastQueued: timestamp("last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued"),
    endpointChangesPending: gauge("endpoint_changes_pending", "Pending proxy rules Endpoint changes"),
    serviceChangesPending: gauge("service_changes_pending", "Pending proxy rules Service changes"),
    endpointChanges: counter("endpoint_changes_total", "Cumulative proxy rules Endpoint changes"),
    serviceChanges: counter("service_changes_total", "Cumulative proxy rules Service changes"),
  };
}

/**
 * Counts the service ports of one IP family whose traffic this node drops, because their policy is Local and all
 * endpoints are elsewhere. Ports without any usable endpoint in the cluster do not count: they are rejected, not dropped.
 *
 * *Source:* kube-proxy `iptables/proxier.go`, serviceNoLocalEndpointsTotal…
 *
 * Pure; O(Services + endpoints of Services with a policy Local).
 */
export function countNoLocalEndpoints(view: NodeView, family: Family) {
  const counts = { internal: 0, external: 0 };
  for (const service of view.services.values()) {
    const { internalTrafficPolicy, externalTrafficPolicy, clusterIPs, ports } = service.service;
    const isInternal = internalTrafficPolicy === "Local";
    const isExternal = externalTrafficPolicy === "Local" && isExternallyAccessible(service.service);
    if (!(isInternal || isExternal) || (clusterIPs?.[family].length ?? 0) === 0) continue;
    for (const [index, port] of ports.entries()) {
      if (!isUsableOnlyElsewhere(service, port, index, family)) continue;
      if (isInternal) counts.internal++;
      if (isExternal) counts.external++;
    }
  }
  return counts;
}

function isUsableOnlyElsewhere(service: ServiceView, port: ServicePort, index: number, family: Family): boolean {
  const usable = service.endpoints.filter(
    ({ addresses, ports }) =>
      addresses[family].length > 0 && (ports.length === 0 || ports.some(({ name }) => name === port.name)),
  );
  if (usable.some(({ use }) => use.local)) return false;
  return service.portHasEndpoints?.[index]?.[family] ?? usable.some(({ use }) => use.cluster);
}

/** Values of the label `ip_family`, as kube-proxy writes them. */
export const familyLabels: Readonly<Record<Family, "IPv4" | "IPv6">> = { v4: "IPv4", v6: "IPv6" };

/** kube-proxy's buckets for the duration of its own work: from 1 ms, doubling up to 16.4 s. *Unit:* seconds. */
export const shortBuckets: readonly number[] = Array.from({ length: 15 }, (_, index) => 0.001 * 2 ** index);
