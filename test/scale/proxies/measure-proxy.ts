import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../../cluster/cluster.ts";
import { mebibytes, type ProcessUsage } from "../proc.ts";
import { type ClusterShape, setEndpoints } from "./bench-cluster.ts";
import type { ProxyUnderTest } from "./proxy-under-test.ts";

/** Limits of {@link measureProxy}. */
interface MeasureOptions {
  readonly shape: ClusterShape;
  /** Number of changed endpoints. */
  readonly changes: number;
  /** Time limit for a full sync and for one change. */
  readonly limitMs: number;
}

/** Start and changes of one proxy. */
interface ProxyResult {
  /** Undefined if the sync took longer than the limit. */
  readonly fullMs: number | undefined;
  readonly fullCpuMs: number;
  readonly changeMs: number;
  readonly changeCpuMs: number;
  readonly usage: ProcessUsage;
}

/** Head of the table of {@link printRow}. */
export const proxyColumns =
  "| | full sync | CPU since the start | one endpoint | CPU for it | RSS | RSS peak |\n|---|--:|--:|--:|--:|--:|--:|\n";

/**
 * Measures a proxy that has just been started: the time to installed rules, and the cost of one changed endpoint.
 */
async function measureProxy(
  proxy: ProxyUnderTest,
  cluster: Cluster,
  { shape, changes, limitMs }: MeasureOptions,
): Promise<ProxyResult> {
  const full = "kubeproxy_sync_full_proxy_rules_duration_seconds";
  const isDone = await proxy.isInstalled(limitMs);
  const usage = proxy.usage;
  if (!isDone) {
    return { fullMs: undefined, fullCpuMs: usage.cpuMs, changeMs: Number.NaN, changeCpuMs: Number.NaN, usage };
  }
  const fullMs = (await proxy.metric(`${full}_sum`)) * 1_000;
  // The remaining work of the start must not count for the first change.
  await sleep(3_000);
  const settled = proxy.usage;
  await proveComplete(proxy, shape);
  const askingMs = await askingCost(proxy);
  const before = await partials(proxy);
  const cpuBefore = proxy.usage.cpuMs;
  let { count } = before;
  let asked = 0;
  for (let change = 0; change < changes; change++) {
    const at = change >> 1;
    await setEndpoints(cluster.api, shape, at, change % 2 === 0 ? shape.endpoints - 1 : shape.endpoints);
    await sleep(400);
    const isSynced = await proxy.until(
      async () => {
        asked += 1;
        const now = await partials(proxy);
        const isMore = now.count > count;
        ({ count } = now);
        return isMore;
      },
      limitMs,
      400,
    );
    if (!isSynced) throw new Error(`change ${change} was not synced within ${limitMs} ms`);
  }
  const cpuMs = proxy.usage.cpuMs - cpuBefore - asked * askingMs;
  const after = await partials(proxy);
  return {
    fullMs,
    fullCpuMs: settled.cpuMs,
    changeMs: ((after.sum - before.sum) * 1_000) / (after.count - before.count),
    changeCpuMs: cpuMs / changes,
    usage: proxy.usage,
  };
}

async function partials(proxy: ProxyUnderTest): Promise<{ readonly count: number; readonly sum: number }> {
  const name = "kubeproxy_sync_partial_proxy_rules_duration_seconds";
  const [count = 0, sum = 0] = await proxy.metrics(`${name}_count`, `${name}_sum`);
  return { count, sum };
}

/** CPU time of the proxy for one request of its metrics, in milliseconds. */
async function askingCost(proxy: ProxyUnderTest): Promise<number> {
  const times = 20;
  const before = proxy.usage.cpuMs;
  for (let time = 0; time < times; time++) await partials(proxy);
  return (proxy.usage.cpuMs - before) / times;
}

/** Fails if the proxy has not installed rules for all endpoints: it would be faster for doing less. */
async function proveComplete(proxy: ProxyUnderTest, { services, ports, endpoints }: ClusterShape): Promise<void> {
  const rules = await proxy.rules();
  // Slots of kpng-nft, and the elements of kube-proxy's anonymous maps.
  const pattern = proxy.isNftables ? /: 10\.\d+\.\d+\.\d+ \. \d+/g : /--to-destination/g;
  const made = rules.match(pattern)?.length ?? 0;
  if (made < services * ports * endpoints) throw new Error(`only ${made} rules for endpoints are installed`);
}

/** Measures a proxy with {@link measureProxy}, prints its row, and closes it. */
export async function printRow(
  name: string,
  proxy: ProxyUnderTest,
  cluster: Cluster,
  options: MeasureOptions,
): Promise<void> {
  const result = await measureProxy(proxy, cluster, options).finally(() => proxy.close());
  process.stdout.write(rowOf(name, result, options.limitMs));
}

/** *Shape:* `1000 Services × 2 ports × 10 endpoints`. */
export function describeShape({ services, ports, endpoints }: ClusterShape): string {
  return `${services} Services × ${ports} ports × ${endpoints} endpoints`;
}

function rowOf(name: string, result: ProxyResult, limitMs: number): string {
  const { fullMs, fullCpuMs, changeMs, changeCpuMs, usage } = result;
  const full = fullMs === undefined ? `not in ${limitMs / 1_000} s` : `${(fullMs / 1_000).toFixed(2)} s`;
  const cells = [
    full,
    `${(fullCpuMs / 1_000).toFixed(2)} s`,
    `${changeMs.toFixed(0)} ms`,
    `${changeCpuMs.toFixed(1)} ms`,
    mebibytes(usage.rssBytes),
    mebibytes(usage.peakRssBytes),
  ];
  return `| ${[name, ...cells].join(" | ")} |\n`;
}
