import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../../cluster/cluster.ts";
import { mebibytes } from "../proc.ts";
import { type ClusterShape, setEndpoints } from "./bench-cluster.ts";
import type { ProxyUnderTest } from "./proxy-under-test.ts";

/** Number of changed endpoints. */
const changes = 10;

/** Time limit for a full sync and for one change, in milliseconds. */
const limitMs = 120_000;

/** Start and changes of one proxy. */
interface ProxyResult {
  /** Undefined if the sync took longer than the limit. */
  readonly fullMs: number | undefined;
  readonly changeMs: number;
  readonly rssBytes: number;
}

/** Head of the table of {@link printRow}. */
export const proxyColumns = "| | full sync | one endpoint | RSS |\n|---|--:|--:|--:|\n";

/**
 * Measures a proxy that has just been started: the time to installed rules, and the cost of one changed endpoint.
 */
async function measureProxy(proxy: ProxyUnderTest, cluster: Cluster, shape: ClusterShape): Promise<ProxyResult> {
  const isDone = await proxy.isInstalled(limitMs);
  if (!isDone) return { fullMs: undefined, changeMs: Number.NaN, rssBytes: proxy.rssBytes };
  const [fullSeconds = 0] = await proxy.metrics("kubeproxy_sync_full_proxy_rules_duration_seconds_sum");
  // The remaining work of the start must not count for the first change.
  await sleep(3_000);
  await proveComplete(proxy, shape);
  const before = await partials(proxy);
  let { count } = before;
  for (let change = 0; change < changes; change++) {
    const at = change >> 1;
    await setEndpoints(cluster.api, shape, at, change % 2 === 0 ? shape.endpoints - 1 : shape.endpoints);
    await sleep(400);
    const isSynced = await proxy.until(
      async () => {
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
  const after = await partials(proxy);
  const changeMs = ((after.sum - before.sum) * 1_000) / (after.count - before.count);
  return { fullMs: fullSeconds * 1_000, changeMs, rssBytes: proxy.rssBytes };
}

async function partials(proxy: ProxyUnderTest): Promise<{ readonly count: number; readonly sum: number }> {
  const name = "kubeproxy_sync_partial_proxy_rules_duration_seconds";
  const [count = 0, sum = 0] = await proxy.metrics(`${name}_count`, `${name}_sum`);
  return { count, sum };
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
  shape: ClusterShape,
): Promise<void> {
  const result = await measureProxy(proxy, cluster, shape).finally(() => proxy.close());
  process.stdout.write(rowOf(name, result));
}

/** *Shape:* `1000 Services × 2 ports × 10 endpoints`. */
export function describeShape({ services, ports, endpoints }: ClusterShape): string {
  return `${services} Services × ${ports} ports × ${endpoints} endpoints`;
}

function rowOf(name: string, { fullMs, changeMs, rssBytes }: ProxyResult): string {
  const full = fullMs === undefined ? `not in ${limitMs / 1_000} s` : `${(fullMs / 1_000).toFixed(2)} s`;
  return `| ${[name, full, `${changeMs.toFixed(0)} ms`, mebibytes(rssBytes)].join(" | ")} |\n`;
}
