import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { findBinaries } from "../cluster/binaries.ts";
import { type Cluster, startCluster } from "../cluster/cluster.ts";
import { fillWithServices, type IptablesShape, setEndpoints } from "./iptables-cluster.ts";
import { mebibytes } from "./proc.ts";
import { type ProxyVariant, startKpng, startKubeProxy } from "./proxies/start-proxy.ts";
import { startWatcher } from "./proxies/start-watcher.ts";
import type { ProxyUnderTest, Usage } from "./proxy-under-test.ts";

/**
 * Compares kpng-iptables and kpng-nft with the real kube-proxy in the same mode in one run: the time from the start to
 * installed rules, and the time for one changed endpoint. Each proxy runs in its own network namespace, and both read
 * the same API server. Durations are from the metrics that both export. CPU time is that of the process and of the
 * tools that it ran, as counted by the kernel.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000,5000" },
    ports: { type: "string", default: "2" },
    endpoints: { type: "string", default: "10" },
    /** iptables-nft, iptables-legacy, and nftables mode. */
    variants: { type: "string", default: "nft,legacy,nftables" },
    changes: { type: "string", default: "20" },
    /** Time limit for a full sync, in seconds. */
    limit: { type: "string", default: "120" },
  },
});
const limitMs = Number(values.limit) * 1_000;
const changes = Number(values.changes);

interface Result {
  /** Undefined if the sync took longer than the limit. */
  readonly fullMs: number | undefined;
  readonly startMs: number;
  readonly fullCpuMs: number;
  readonly changeMs: number;
  readonly changeCpuMs: number;
  readonly usage: Usage;
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);
async function measure(proxy: ProxyUnderTest, cluster: Cluster, shape: IptablesShape): Promise<Result> {
  const startedAt = performance.now();
  const full = "kubeproxy_sync_full_proxy_rules_duration_seconds";
  const isDone = await proxy.until(async () => (await proxy.metric(`${full}_count`)) > 0, limitMs, 200);
  const startMs = performance.now() - startedAt;
  const usage = proxy.usage;
  if (!isDone) {
    return { fullMs: undefined, startMs, fullCpuMs: usage.cpuMs, changeMs: Number.NaN, changeCpuMs: Number.NaN, usage };
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
    startMs,
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
async function proveComplete(proxy: ProxyUnderTest, { services, ports, endpoints }: IptablesShape): Promise<void> {
  const rules = await proxy.rules();
  // Slots of kpng-nft, and the elements of kube-proxy's anonymous maps.
  const pattern = proxy.isNftables ? /: 10\.\d+\.\d+\.\d+ \. \d+/g : /--to-destination/g;
  const made = rules.match(pattern)?.length ?? 0;
  if (made < services * ports * endpoints) throw new Error(`only ${made} rules for endpoints are installed`);
}

async function measureOne(proxy: Promise<ProxyUnderTest>, cluster: Cluster, shape: IptablesShape): Promise<Result> {
  const started = await proxy;
  try {
    return await measure(started, cluster, shape);
  } finally {
    await started.close();
  }
}

function show(name: string, { fullMs, startMs, fullCpuMs, changeMs, changeCpuMs, usage }: Result): void {
  const full = fullMs === undefined ? `not in ${values.limit} s` : `${(fullMs / 1_000).toFixed(2)} s`;
  const cells = [
    full,
    `${(startMs / 1_000).toFixed(1)} s`,
    `${(fullCpuMs / 1_000).toFixed(2)} s`,
    `${changeMs.toFixed(0)} ms`,
    `${changeCpuMs.toFixed(0)} ms`,
    mebibytes(usage.rssBytes),
    mebibytes(usage.peakRssBytes),
  ];
  print(`| ${[name, ...cells].join(" | ")} |`);
}

function showRatios(theirs: Result, own: Result): void {
  const times = (one: number | undefined, other: number | undefined): string =>
    one === undefined || other === undefined || Number.isNaN(one / other) ? "?" : `${(one / other).toFixed(1)} ×`;
  const cells = [
    theirs.fullMs === undefined
      ? `> ${(limitMs / (own.fullMs ?? limitMs)).toFixed(0)} ×`
      : times(theirs.fullMs, own.fullMs),
    times(theirs.startMs, own.startMs),
    times(theirs.fullCpuMs, own.fullCpuMs),
    times(theirs.changeMs, own.changeMs),
    times(theirs.changeCpuMs, own.changeCpuMs),
    times(theirs.usage.rssBytes, own.usage.rssBytes),
    times(theirs.usage.peakRssBytes, own.usage.peakRssBytes),
  ];
  print(`| kube-proxy : kpng | ${cells.join(" | ")} |`);
}

const found = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
if (found.kind !== "found") {
  print(`cannot run: ${found.reason}`);
  process.exit(1);
}
for (const services of values.services.split(",").map(Number)) {
  const shape = { services, ports: Number(values.ports), endpoints: Number(values.endpoints) };
  const cluster = await startCluster({ paths: found.paths, hasControllers: false });
  const socket = join(cluster.folder, "watcher.sock");
  let watcher: ChildProcess | undefined;
  try {
    await fillWithServices(cluster.api, shape);
    watcher = await startWatcher(cluster, socket);
    for (const variant of values.variants
      .split(",")
      .map((word): ProxyVariant => (word === "legacy" || word === "nftables" ? word : "nft"))) {
      print(
        `${services} Services × ${shape.ports} ports × ${shape.endpoints} endpoints, ${variant === "nftables" ? variant : `iptables-${variant}`}; CPU with tools\n`,
      );
      print("| | full sync | from the start to it | CPU until then | one endpoint | CPU for it | RSS | RSS peak |");
      print("|---|--:|--:|--:|--:|--:|--:|--:|");
      const own = await measureOne(startKpng(socket, variant), cluster, shape);
      show(variant === "nftables" ? "kpng-nft" : "kpng-iptables", own);
      const theirs = await measureOne(
        startKubeProxy(cluster, found.paths["kube-proxy"] ?? "", variant),
        cluster,
        shape,
      );
      show("kube-proxy 1.36", theirs);
      showRatios(theirs, own);
      print("");
    }
  } finally {
    watcher?.kill();
    await cluster.stop();
  }
}
process.exit();
