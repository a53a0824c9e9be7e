import { loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { onClusters } from "./bench-clusters.ts";
import { describeShape, printRow, proxyColumns, ratiosOf } from "./measure-proxy.ts";
import { type ProxyVariant, startKpng, startKubeProxy } from "./start-proxy.ts";
import { startWatcher } from "./start-watcher.ts";

/**
 * Compares kpng-nft with the real kube-proxy in nftables mode in one run, at several numbers of Services; and measures
 * the table of kpng-nft alone, and beside the rules of kube-proxy in both modes: `npm run bench -- nft`.
 *
 * kube-proxy is stopped (SIGSTOP) once its rules are installed: the rules beside ours matter here, and not the CPU time
 * that kube-proxy takes.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000,5000,10000" },
    changes: { type: "string", default: "10" },
    /** Modes of kube-proxy to measure our table beside. iptables-nft needs minutes from 2 000 Services on. */
    beside: { type: "string", default: "nftables,legacy" },
    /** Time limit for a full sync, in seconds. */
    limit: { type: "string", default: "240" },
  },
});
const limitMs = Number(values.limit) * 1_000;
const tableBench = join(import.meta.dirname, "../../../services/nftables/src/testing/bench.ts");
const print = (text: string): void => void process.stdout.write(text);

await onClusters(values.services, {}, async ({ cluster, shape, socket, kubeProxy: program }) => {
  const options = { shape, changes: Number(values.changes), limitMs };
  const watcher = await startWatcher(cluster, socket);
  print(`${describeShape(shape)} (load ${loadavg()[0]?.toFixed(0)})\n\n${proxyColumns}`);
  const kpng = await startKpng(socket, "nft");
  const own = await printRow("kpng-nft", kpng, cluster, options).finally(() => kpng.close());
  watcher.kill();
  for (const variant of ["nftables", "legacy", "nft"] satisfies ProxyVariant[]) {
    const isBeside = values.beside.split(",").includes(variant);
    if (variant !== "nftables" && !isBeside) continue;
    const kubeProxy = await startKubeProxy(cluster, program, variant);
    try {
      if (variant === "nftables") {
        print(`${ratiosOf(await printRow("kube-proxy 1.36", kubeProxy, cluster, options), own, limitMs)}\n`);
      }
      if (!isBeside) continue;
      const where = `beside kube-proxy, ${variant === "nftables" ? variant : `iptables-${variant}`}`;
      const isInstalled = await kubeProxy.isInstalled(limitMs);
      kubeProxy.suspend();
      const beside = isInstalled ? where : `${where} (unfinished)`;
      print(await kubeProxy.run([process.execPath, tableBench, "--beside", beside, String(shape.services)]));
    } finally {
      await kubeProxy.close();
    }
  }
  print("\n");
});
