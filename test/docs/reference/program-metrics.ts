import { createRouterTransport } from "@connectrpc/connect";
import { observeRules } from "@kpng/backend-iptables/commit/observe-rules.ts";
import { observeRefused } from "@kpng/backend-ipvs/commit/ipvs-rule-set.ts";
import { StaleFlowCleaner } from "@kpng/backend-kit/conntrack/stale-flow-cleaner.ts";
import { ViewKeeper } from "@kpng/backend-kit/disk/view-keeper.ts";
import { HealthCheckServers } from "@kpng/backend-kit/health-check/health-check-servers.ts";
import { createBackendMetrics, observeKnownNode } from "@kpng/backend-kit/observe/backend-metrics.ts";
import { ProxyHealth, proxyObserveTasks } from "@kpng/backend-kit/observe/proxy-health.ts";
import { ProxyMetrics } from "@kpng/backend-kit/observe/proxy-metrics.ts";
import { ClashReport, UnservedReport } from "@kpng/backend-kit/proxy/family-planner.ts";
import { countRepairs, driftCheck } from "@kpng/backend-kit/proxy/proxy-task.ts";
import { registerTrafficMetrics, TrafficLimit, TrafficTable } from "@kpng/backend-userspace/traffic/service-traffic.ts";
import { Health } from "@kpng/process/health/health.ts";
import { registerProcessMetrics } from "@kpng/process/health/status-server.ts";
import { createLog } from "@kpng/process/log.ts";
import { apiSource } from "@kpng/source/api/api-source.ts";
import { makeDecodeOptions } from "@kpng/source/decode/decoded.ts";
import { fileSource } from "@kpng/source/file/file-source.ts";
import { beginSeries, makeSourceMetrics } from "@kpng/source/kube/kind-report.ts";
import { Connections } from "@kpng/watcher/connection/connections.ts";
import { Refusals } from "@kpng/watcher/connection/limits.ts";
import { makeReviewCounter } from "@kpng/watcher/identity/token-checker.ts";
import { countFindings, Findings } from "@kpng/watcher/inspect/findings.ts";
import { observeCurrency } from "@kpng/watcher/store/currency.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { observeStore } from "@kpng/watcher/store/store-metrics.ts";
import { makeCertificateExpiry } from "@kpng/watcher/stream/serve/reload-tls.ts";
import { Subscribers } from "@kpng/watcher/stream/session/subscribers.ts";
import { Registry } from "prom-client";

const log = createLog("error");

/** Registers the metrics of one part of a program, by the code that registers them there. */
type Register = (registry: Registry) => void | Promise<void>;

const groups: Readonly<Record<string, Register>> = {
  process: (registry) => registerProcessMetrics(registry, new Health()),
  watcher: (registry) => {
    const store = new Store();
    observeStore(store, registry);
    observeCurrency(store, { log, health: new Health(), metrics: registry });
    const subscribers = new Subscribers(store, registry);
    countFindings(registry, new Findings({ subscribers, health: new Health(), hasNodes: true }));
    new Connections({}, log, registry, new Refusals(log, registry));
    makeReviewCounter(registry);
    makeCertificateExpiry(registry);
  },
  kube: (registry) => {
    const metrics = makeSourceMetrics(registry);
    for (const kind of ["services", "slices", "nodes"] as const) beginSeries(metrics, kind);
  },
  file: (registry) => {
    const common = { sink: new Store(), metrics: registry, health: new Health(), log };
    fileSource({ inputs: [], decode: makeDecodeOptions({}), ...common });
  },
  api: (registry) => {
    const common = { sink: new Store(), metrics: registry, health: new Health(), log };
    return apiSource({ transport: createRouterTransport(() => {}), ...common }).run(AbortSignal.abort());
  },
  backend: (registry) => {
    createBackendMetrics(registry);
    observeKnownNode({ nodeName: "", health: new Health(), log, metrics: registry });
  },
  "backend-parts": (registry) => {
    const common = { log, metrics: registry };
    new ViewKeeper({ folder: "", nodeName: "", serviceProxyName: "", ...common });
    new HealthCheckServers({ isProxyHealthy: () => true, ...common });
    new StaleFlowCleaner({ ...common, health: new Health(), errorDelayMs: 1_000, families: [] });
  },
  "service-proxy": (registry) => {
    new ProxyMetrics({ registry, families: [] });
    new ClashReport(log, registry);
    new UnservedReport(log, registry);
    countRepairs(registry, []);
    registerDriftCheck(registry);
    const parts = { proxyHealth: new ProxyHealth(), health: new Health(), metrics: registry };
    proxyObserveTasks({ healthzBindAddress: "127.0.0.1:0" }, { ...parts, mode: "any" });
  },
  iptables: (registry) => {
    observeRules(registry, []);
  },
  userspace: (registry) => {
    const limit = new TrafficLimit({ total: 0, perService: 0 });
    const counts = { closedFrontends: () => 0 };
    registerTrafficMetrics(registry, { table: new TrafficTable(), connections: limit, flows: limit, ...counts });
  },
  ipvs: (registry) => {
    observeRefused(registry, []);
  },
};

/** A metric that a program exposes. */
export interface ProgramMetric {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  /** By label: the values that have a series from the start. */
  readonly labels: ReadonlyMap<string, readonly string[]>;
}

/** Returns the metrics of one group, without prom-client's own. Errors: a group that does not exist. */
export async function metricsOf(group: string): Promise<readonly ProgramMetric[]> {
  const register = groups[group];
  if (register === undefined) throw new Error(`no group of metrics is called "${group}"`);
  const registry = new Registry();
  await register(registry);
  const series = new Map((await registry.getMetricsAsJSON()).map(({ name, values }) => [name, values]));
  const own = registry.getMetricsAsArray().filter(({ name }) => /^(kpng|kubeproxy)_/.test(name));
  return own.map((metric) => {
    const { name, type, help } = metric;
    const names = "labelNames" in metric && Array.isArray(metric.labelNames) ? metric.labelNames.map(String) : [];
    const labels = names.map((label): [string, string[]] => {
      const values = (series.get(name) ?? []).flatMap((sample) => sample.labels[label] ?? []);
      return [label, [...new Set(values.map(String))]];
    });
    return { name, type: String(type), help, labels: new Map(labels) };
  });
}

export const metricGroups: readonly string[] = Object.keys(groups);

function registerDriftCheck(metrics: Registry): void {
  driftCheck({ repair: async () => undefined }, 0, { log, health: new Health(), metrics });
}
