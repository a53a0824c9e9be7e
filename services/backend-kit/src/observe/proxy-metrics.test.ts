import { endpoint, service, view } from "@kpng/model/testing/views.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { syncUpdate } from "../testing/sync-update.ts";
import { countNoLocalEndpoints, ProxyMetrics } from "./proxy-metrics.ts";

const elsewhere = [{ v4: true, v6: false }];
const nowhere = [{ v4: false, v6: false }];
const world = view([
  service("a/internal", { internalTrafficPolicy: "Local", portHasEndpoints: elsewhere }),
  service("a/external", { externalTrafficPolicy: "Local", externalIPs: ["192.0.2.1"], portHasEndpoints: elsewhere }),
  service("a/unreachable", { externalTrafficPolicy: "Local", portHasEndpoints: elsewhere }),
  service("a/nowhere", { internalTrafficPolicy: "Local", portHasEndpoints: nowhere }),
  service("a/here", {
    internalTrafficPolicy: "Local",
    portHasEndpoints: elsewhere,
    endpoints: [endpoint("10.1.0.1", { isOnNode: true, use: { cluster: true, local: true } })],
  }),
  service("a/go", { internalTrafficPolicy: "Local", endpoints: [endpoint("10.1.0.2")] }),
  service("a/v6", { internalTrafficPolicy: "Local", ips: ["fd00::1"], portHasEndpoints: [{ v4: true, v6: true }] }),
]);

test("service ports that are dropped because no endpoint is on this node are counted per policy and family", () => {
  expect(countNoLocalEndpoints(world, "v4")).toEqual({ internal: 2, external: 1 });
  expect(countNoLocalEndpoints(world, "v6")).toEqual({ internal: 1, external: 0 });
});

const update = syncUpdate({ view: world, counts: { services: 1, endpoints: 2 }, mode: "full", fullReason: "start" });

test("the sync loop updates kube-proxy's metrics", async () => {
  const registry = new Registry();
  const metrics = new ProxyMetrics({ registry, families: ["v4"], now: () => 5_000 });
  const has = async (...lines: readonly string[]) => {
    const text = await registry.metrics();
    for (const line of lines) expect(text).toContain(`\nkubeproxy_${line}\n`);
  };
  metrics.queued(update);
  await has(
    "sync_proxy_rules_service_changes_pending 1",
    "sync_proxy_rules_endpoint_changes_pending 2",
    'sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 5',
  );
  metrics.started();
  metrics.failed(update);
  await has("sync_proxy_rules_endpoint_changes_pending 2");
  metrics.started();
  const arrival = { receivedAtMs: 0, storedAtMs: 0, triggeredAtMs: [4_600], traceparents: [], tracedNodes: 0 };
  metrics.succeeded({ ...update, arrival }, { receivedAtMs: 0, startedAtMs: 1, renderedAtMs: 2, endedAtMs: 5 });
  await has(
    "sync_proxy_rules_service_changes_pending 0",
    "sync_proxy_rules_service_changes_total 1",
    "sync_proxy_rules_endpoint_changes_total 2",
    'sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 5',
    'sync_proxy_rules_duration_seconds_bucket{le="0.002",ip_family="IPv4"} 0',
    'sync_proxy_rules_duration_seconds_bucket{le="0.004",ip_family="IPv4"} 1',
    'sync_proxy_rules_duration_seconds_bucket{le="16.384",ip_family="IPv4"} 1',
    'sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1',
    'sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 2',
    'network_programming_duration_seconds_bucket{le="0.25",ip_family="IPv4"} 0',
    'network_programming_duration_seconds_bucket{le="0.5",ip_family="IPv4"} 1',
    'network_programming_duration_seconds_bucket{le="300",ip_family="IPv4"} 1',
  );
});
