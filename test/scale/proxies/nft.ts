import { loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { findBinaries } from "../../cluster/binaries.ts";
import { startCluster } from "../../cluster/cluster.ts";
import { fillWithServices } from "../iptables-cluster.ts";
import type { ProxyUnderTest } from "../proxy-under-test.ts";
import { measureProxy, type ProxyResult, proxyColumns, ratiosOf, rowOf } from "./measure-proxy.ts";
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
const tableBench = join(import.meta.dirname, "../../../services/backend-nft/src/testing/bench.ts");
const print = (text: string): void => void process.stdout.write(text);

const found = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
if (found.kind !== "found") {
  print(`cannot run: ${found.reason}\n`);
  process.exit(1);
}
for (const services of values.services.split(",").map(Number)) {
  const shape = { services, ports: 2, endpoints: 10 };
  const cluster = await startCluster({ paths: found.paths, hasControllers: false });
  const socket = join(cluster.folder, "watcher.sock");
  const measure = async (name: string, proxy: ProxyUnderTest): Promise<ProxyResult> => {
    const result = await measureProxy(proxy, cluster, { shape, changes: Number(values.changes), limitMs });
    print(rowOf(name, result, limitMs));
    return result;
  };
  const measureTable = async (where: string, proxy: ProxyUnderTest): Promise<void> =>
    print(await proxy.run([process.execPath, tableBench, "--beside", where, String(services)]));
  try {
    await fillWithServices(cluster.api, shape);
    const watcher = await startWatcher(cluster, socket);
    print(`${services} Services × 2 ports × 10 endpoints (load ${loadavg()[0]?.toFixed(0)})\n\n${proxyColumns}`);
    const kpng = await startKpng(socket, "nftables");
    const own = await measure("kpng-nft", kpng).finally(() => kpng.close());
    watcher.kill();
    for (const variant of ["nftables", "legacy", "nft"] satisfies ProxyVariant[]) {
      const isBeside = values.beside.split(",").includes(variant);
      if (variant !== "nftables" && !isBeside) continue;
      const kubeProxy = await startKubeProxy(cluster, found.paths["kube-proxy"] ?? "", variant);
      try {
        if (variant === "nftables") print(`${ratiosOf(await measure("kube-proxy 1.36", kubeProxy), own, limitMs)}\n`);
        if (!isBeside) continue;
        const where = `beside kube-proxy, ${variant === "nftables" ? variant : `iptables-${variant}`}`;
        const isInstalled = await kubeProxy.isInstalled(limitMs);
        kubeProxy.suspend();
        await measureTable(isInstalled ? where : `${where} (unfinished)`, kubeProxy);
      } finally {
        await kubeProxy.close();
      }
    }
    print("\n");
  } finally {
    await cluster.stop();
  }
}
process.exit();
