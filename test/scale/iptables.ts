import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { findBinaries } from "../cluster/binaries.ts";
import { type Cluster, startCluster } from "../cluster/cluster.ts";
import type { IptablesVariant } from "../kernel/laboratory/legacy-tools.ts";
import { relay } from "../peer/kube-proxy/relay.ts";
import { fillWithServices, type IptablesShape, setEndpoints } from "./iptables-cluster.ts";
import { mebibytes } from "./proc.ts";
import { ProxyUnderTest, type Usage } from "./proxy-under-test.ts";

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
const common = ["--hostname-override=n1", "--cluster-cidr=10.0.0.0/8", "--metrics-bind-address=127.0.0.1:10249"];

/** A kind of iptables, or nftables mode. */
type Variant = IptablesVariant | "nftables";

/** Once an hour: periodic syncs would be counted with the changes. */
const periods = (mode: string): readonly string[] => [`--${mode}-sync-period=1h`, `--${mode}-min-sync-period=0s`];

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

async function measureKubeProxy(cluster: Cluster, path: string, variant: Variant, shape: IptablesShape) {
  const apiPort = Number(new URL(cluster.apiServer.url).port);
  const apiSocket = join(cluster.folder, `api-${variant}-${shape.services}.sock`);
  const api = relay(apiSocket, apiPort);
  const proxy = await ProxyUnderTest.start(
    variant,
    [
      path,
      `--proxy-mode=${variant === "nftables" ? "nftables" : "iptables"}`,
      // These apply to nftables mode, too.
      ...periods("iptables"),
      `--kubeconfig=${cluster.kubeconfig("admin")}`,
      "--detect-local-mode=ClusterCIDR",
      "--healthz-bind-address=127.0.0.1:10256",
      // conntrack limits apply to the whole machine, not to the namespace.
      "--conntrack-max-per-core=0",
      "--conntrack-tcp-timeout-established=0s",
      "--conntrack-tcp-timeout-close-wait=0s",
      "--oom-score-adj=0",
      ...common,
    ],
    [[apiPort, apiSocket]],
  );
  try {
    return await measure(proxy, cluster, shape);
  } finally {
    await proxy.close();
    api.close();
  }
}

async function measureKpng(cluster: Cluster, watcherSocket: string, variant: Variant, shape: IptablesShape) {
  const [backend, mode] = variant === "nftables" ? ["nft", "nftables"] : ["iptables", "iptables"];
  const main = join(import.meta.dirname, `../../services/backend-${backend}/src/main.ts`);
  const from = ["--api", `unix://${watcherSocket}`, "--state-dir", "none", ...periods(mode ?? "")];
  const proxy = await ProxyUnderTest.start(variant, [process.execPath, main, ...from, ...common.map(ours)], []);
  try {
    return await measure(proxy, cluster, shape);
  } finally {
    await proxy.close();
  }
}

/** Returns kpng's name of an option of kube-proxy. Only one differs. */
function ours(option: string): string {
  return option.replace("--hostname-override", "--node-name");
}

async function startWatcher(cluster: Cluster, socket: string): Promise<ChildProcess> {
  const main = join(import.meta.dirname, "../../services/cli/src/main.ts");
  const [probe] = [createServer()];
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as { readonly port: number };
  await new Promise((resolve) => probe.close(resolve));
  const child = spawn(
    process.execPath,
    [
      ...[main, "kube", "--kubeconfig", cluster.kubeconfig("admin"), "to-api", "--listen", `unix://${socket}`],
      ...["--healthz-bind-address", `127.0.0.1:${port}`, "--log-level", "error"],
    ],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  const isReady = () =>
    fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) await sleep(50);
  return child;
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
      .map((word): Variant => (word === "legacy" || word === "nftables" ? word : "nft"))) {
      print(
        `${services} Services × ${shape.ports} ports × ${shape.endpoints} endpoints, ${variant === "nftables" ? variant : `iptables-${variant}`}; CPU with tools\n`,
      );
      print("| | full sync | from the start to it | CPU until then | one endpoint | CPU for it | RSS | RSS peak |");
      print("|---|--:|--:|--:|--:|--:|--:|--:|");
      const own = await measureKpng(cluster, socket, variant, shape);
      show(variant === "nftables" ? "kpng-nft" : "kpng-iptables", own);
      const theirs = await measureKubeProxy(cluster, found.paths["kube-proxy"] ?? "", variant, shape);
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
