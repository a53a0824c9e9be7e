import { loadavg } from "node:os";
import { onClusters, startWatcher } from "./bench-cluster.ts";
import { describeShape, printRow, proxyColumns } from "./measure-proxy.ts";
import { startKpng, startKubeProxy } from "./proxy-under-test.ts";

/**
 * Compares kpng-nft and kpng-iptables with the real kube-proxy in the same mode: the time from the start to installed
 * rules, and the cost of one changed endpoint. Each proxy runs in its own network namespace, and all read the same API
 * server. Durations are from the metrics that both export.
 */
const print = (text: string): void => void process.stdout.write(text);

await onClusters(async ({ cluster, shape, socket, kubeProxy }) => {
  const watcher = await startWatcher(cluster, socket);
  try {
    // nftables mode, and iptables mode with either variant of the tools.
    for (const variant of ["nftables", "nft", "legacy"] as const) {
      const mode = variant === "nftables" ? variant : `iptables-${variant}`;
      print(`${describeShape(shape)}, ${mode} (load ${loadavg()[0]?.toFixed(0)})\n\n${proxyColumns}`);
      await printRow("kpng", await startKpng(socket, variant), cluster, shape);
      await printRow("kube-proxy 1.36", await startKubeProxy(cluster, kubeProxy, variant), cluster, shape);
      print("\n");
    }
  } finally {
    watcher.kill();
  }
});
