import { parseArgs } from "node:util";
import { onClusters } from "./proxies/bench-clusters.ts";
import { describeShape, type ProxyResult, printRow, proxyColumns, ratiosOf } from "./proxies/measure-proxy.ts";
import { type ProxyVariant, startKpng, startKubeProxy } from "./proxies/start-proxy.ts";
import { startWatcher } from "./proxies/start-watcher.ts";
import type { ProxyUnderTest } from "./proxy-under-test.ts";

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
const print = (text: string): void => void process.stdout.write(text);

await onClusters(
  values.services,
  { ports: Number(values.ports), endpoints: Number(values.endpoints) },
  async ({ cluster, shape, socket, kubeProxy }) => {
    const options = { shape, changes: Number(values.changes), limitMs };
    const measureOne = async (name: string, started: Promise<ProxyUnderTest>): Promise<ProxyResult> => {
      const proxy = await started;
      return await printRow(name, proxy, cluster, options).finally(() => proxy.close());
    };
    const watcher = await startWatcher(cluster, socket);
    try {
      for (const variant of values.variants
        .split(",")
        .map((word): ProxyVariant => (word === "legacy" || word === "nftables" ? word : "nft"))) {
        const [ours, mode] = variant === "nftables" ? ["kpng-nft", variant] : ["kpng-iptables", `iptables-${variant}`];
        print(`${describeShape(shape)}, ${mode}; CPU with tools\n\n${proxyColumns}`);
        const started = variant === "nftables" ? startKpng(socket, "nft") : startKpng(socket, "iptables", { variant });
        const own = await measureOne(ours ?? "", started);
        const theirs = await measureOne("kube-proxy 1.36", startKubeProxy(cluster, kubeProxy, variant));
        print(`${ratiosOf(theirs, own, limitMs)}\n`);
      }
    } finally {
      watcher.kill();
    }
  },
);
