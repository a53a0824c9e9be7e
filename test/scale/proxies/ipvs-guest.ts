import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Cluster } from "../../cluster/cluster.ts";
import { type IptablesShape, setEndpoints } from "../iptables-cluster.ts";
import { mebibytes } from "../proc.ts";
import type { ProxyUnderTest } from "../proxy-under-test.ts";
import { onClusters } from "./bench-clusters.ts";
import { describeShape } from "./measure-proxy.ts";
import { startKpng, startKubeProxy } from "./start-proxy.ts";
import { startWatcher } from "./start-watcher.ts";

/**
 * The part of the benchmark `ipvs` inside the guest. Durations are from the metric of sync durations that both proxies
 * export. A change counts with all syncs that follow it: kpng-ipvs deletes a removed endpoint in a second one.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000" },
    changes: { type: "string", default: "6" },
    /** Time limit for a full sync and for one change, in seconds. */
    limit: { type: "string", default: "300" },
  },
});
const limitMs = Number(values.limit) * 1_000;
const changes = Number(values.changes);
const print = (text: string): void => void process.stdout.write(text);

interface IpvsResult {
  readonly fullMs: number;
  readonly fullCpuMs: number;
  readonly changeMs: number;
  readonly changeCpuMs: number;
  readonly rssBytes: number;
}

/** Number of real servers in the kernel. */
async function realServers(proxy: ProxyUnderTest): Promise<number> {
  return ((await proxy.run(["ipvsadm", "-S", "-n"])).match(/^-a /gm) ?? []).length;
}

/** Total duration of all syncs in milliseconds, and their number. */
async function syncs(proxy: ProxyUnderTest): Promise<{ readonly ms: number; readonly count: number }> {
  const name = "kubeproxy_sync_proxy_rules_duration_seconds";
  const [count = 0, sum = 0] = await proxy.metrics(`${name}_count`, `${name}_sum`);
  return { count, ms: sum * 1_000 };
}

/** Waits until no sync has ended for some seconds. */
async function untilQuiet(proxy: ProxyUnderTest): Promise<void> {
  for (let before = -1; ; ) {
    const { count } = await syncs(proxy);
    if (count === before) return;
    before = count;
    await sleep(3_000);
  }
}

/** Measures a proxy that has just been started; undefined if it has not synced within the limit. */
async function measure(proxy: ProxyUnderTest, cluster: Cluster, shape: IptablesShape): Promise<IpvsResult | undefined> {
  const wanted = shape.services * shape.ports * shape.endpoints;
  const isDone = async () => (await syncs(proxy)).count > 0 && (await realServers(proxy)) >= wanted;
  if (!(await proxy.until(isDone, limitMs, 2_000))) return undefined;
  await untilQuiet(proxy);
  const full = await syncs(proxy);
  const fullCpuMs = proxy.usage.cpuMs;
  for (let change = 0; change < changes; change++) {
    const count = change % 2 === 0 ? shape.endpoints - 1 : shape.endpoints;
    await setEndpoints(cluster.api, shape, change >> 1, count);
    const expected = wanted - (shape.endpoints - count) * shape.ports;
    const isChanged = async () => (await realServers(proxy)) === expected;
    if (!(await proxy.until(isChanged, limitMs, 500))) throw new Error(`change ${change} was not synced`);
    await untilQuiet(proxy);
  }
  const after = await syncs(proxy);
  const { cpuMs, rssBytes } = proxy.usage;
  return {
    fullMs: full.ms,
    fullCpuMs,
    changeMs: (after.ms - full.ms) / changes,
    changeCpuMs: (cpuMs - fullCpuMs) / changes,
    rssBytes,
  };
}

async function row(name: string, started: Promise<ProxyUnderTest>, cluster: Cluster, shape: IptablesShape) {
  const proxy = await started;
  try {
    const result = await measure(proxy, cluster, shape);
    if (result === undefined) {
      print(`| ${name} | not in ${values.limit} s | | | | |\n`);
      return undefined;
    }
    const { fullMs, fullCpuMs, changeMs, changeCpuMs, rssBytes } = result;
    const cells = [fullMs, fullCpuMs, changeMs, changeCpuMs].map((ms) => `${ms.toFixed(0)} ms`);
    print(`| ${[name, ...cells, mebibytes(rssBytes)].join(" | ")} |\n`);
    return result;
  } finally {
    await proxy.close();
  }
}

await onClusters(values.services, {}, async ({ cluster, shape, socket, kubeProxy }) => {
  const watcher = await startWatcher(cluster, socket);
  print(`${describeShape(shape)}, in a guest\n\n| | full sync | CPU until then | one endpoint | CPU for it | RSS |\n`);
  print("|---|--:|--:|--:|--:|--:|\n");
  const own = await row("kpng-ipvs", startKpng(socket, "ipvs"), cluster, shape);
  watcher.kill();
  const theirs = await row("kube-proxy, ipvs", startKubeProxy(cluster, kubeProxy, "ipvs"), cluster, shape);
  if (own === undefined || theirs === undefined) return;
  const times = (one: number, other: number) => `${(one / other).toFixed(1)} ×`;
  const cells = [
    times(theirs.fullMs, own.fullMs),
    times(theirs.fullCpuMs, own.fullCpuMs),
    times(theirs.changeMs, own.changeMs),
    times(theirs.changeCpuMs, own.changeCpuMs),
    times(theirs.rssBytes, own.rssBytes),
  ];
  print(`| kube-proxy : kpng | ${cells.join(" | ")} |\n`);
});
