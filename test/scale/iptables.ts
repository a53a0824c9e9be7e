import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { findBinaries } from "../cluster/binaries.ts";
import { startCluster } from "../cluster/cluster.ts";
import { fillWithServices } from "./iptables-cluster.ts";
import { measureProxy, type ProxyResult, proxyColumns, ratiosOf, rowOf } from "./proxies/measure-proxy.ts";
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

const found = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
if (found.kind !== "found") {
  print(`cannot run: ${found.reason}\n`);
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
        `${services} Services × ${shape.ports} ports × ${shape.endpoints} endpoints, ${variant === "nftables" ? variant : `iptables-${variant}`}; CPU with tools\n\n`,
      );
      print(proxyColumns);
      const measureOne = async (started: Promise<ProxyUnderTest>): Promise<ProxyResult> => {
        const proxy = await started;
        try {
          return await measureProxy(proxy, cluster, { shape, changes: Number(values.changes), limitMs });
        } finally {
          await proxy.close();
        }
      };
      const own = await measureOne(startKpng(socket, variant));
      print(rowOf(variant === "nftables" ? "kpng-nft" : "kpng-iptables", own, limitMs));
      const theirs = await measureOne(startKubeProxy(cluster, found.paths["kube-proxy"] ?? "", variant));
      print(rowOf("kube-proxy 1.36", theirs, limitMs));
      print(`${ratiosOf(theirs, own, limitMs)}\n`);
    }
  } finally {
    watcher?.kill();
    await cluster.stop();
  }
}
process.exit();
