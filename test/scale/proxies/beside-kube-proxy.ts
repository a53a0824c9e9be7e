import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { onClusters, startWatcher } from "./bench-cluster.ts";
import { describeShape, printRow, proxyColumns } from "./measure-proxy.ts";
import { type ProxyVariant, startKpng, startKubeProxy } from "./proxy-under-test.ts";

/**
 * Compares kpng-nft and kpng-iptables with the real kube-proxy in the same mode: the time from the start to installed
 * rules, and the cost of one changed endpoint. Each proxy runs in its own network namespace, and all read the same API
 * server. Durations are from the metrics that both export.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000,5000" },
    /** nftables mode, and iptables mode with either variant of the tools. */
    variants: { type: "string", default: "nftables,nft,legacy" },
    changes: { type: "string", default: "10" },
    /** Time limit for a full sync, in seconds. */
    limit: { type: "string", default: "120" },
  },
});
const limitMs = Number(values.limit) * 1_000;
const print = (text: string): void => void process.stdout.write(text);
const variants = values.variants
  .split(",")
  .map((word): ProxyVariant => (word === "legacy" || word === "nftables" ? word : "nft"));

await onClusters(values.services, {}, async ({ cluster, shape, socket, kubeProxy }) => {
  const options = { shape, changes: Number(values.changes), limitMs };
  const watcher = await startWatcher(cluster, socket);
  try {
    for (const variant of variants) {
      const mode = variant === "nftables" ? variant : `iptables-${variant}`;
      print(`${describeShape(shape)}, ${mode} (load ${loadavg()[0]?.toFixed(0)})\n\n${proxyColumns}`);
      await printRow("kpng", await startKpng(socket, variant), cluster, options);
      await printRow("kube-proxy 1.36", await startKubeProxy(cluster, kubeProxy, variant), cluster, options);
      print("\n");
    }
  } finally {
    watcher.kill();
  }
});
