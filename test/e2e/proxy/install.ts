import type { Cluster } from "../cluster/cluster.ts";
import type { ProxyName } from "../options.ts";
import { type ProgramPaths, pathOf } from "../program-paths.ts";
import { buildImages } from "./images.ts";
import { applyKpng } from "./kpng.ts";
import { startKubeProxy } from "./kube-proxy.ts";
import { untilDnsIsReady, untilNodesReachServices } from "./until-services-work.ts";

/** Mode of each kube-proxy. */
const kubeProxyModes = {
  "kube-proxy": "iptables",
  "kube-proxy-nftables": "nftables",
  "kube-proxy-ipvs": "ipvs",
} as const;

function isKubeProxy(proxy: ProxyName): proxy is keyof typeof kubeProxyModes {
  return proxy in kubeProxyModes;
}

/** Returns the archives of the images that a proxy is installed from; none for kube-proxy, which runs without. */
export async function archivesFor(proxy: ProxyName): Promise<readonly string[]> {
  return isKubeProxy(proxy) ? [] : buildImages(proxy);
}

/** Times from the beginning of an installation, in milliseconds. */
export interface InstallationTimes {
  /** Until every node reached a Service. */
  readonly nodesMs: number;
  /** Until the cluster's DNS was ready, too. */
  readonly dnsMs: number;
}

/** Installs a proxy, waits until Services work on every node, and returns how long that took. */
export async function installProxy(
  proxy: ProxyName,
  cluster: Cluster,
  paths: ProgramPaths,
): Promise<InstallationTimes> {
  const startedMs = performance.now();
  if (isKubeProxy(proxy)) await startKubeProxy(cluster, pathOf(paths, "kube-proxy"), kubeProxyModes[proxy]);
  else await applyKpng(cluster, proxy);
  return untilServicesWork(cluster, startedMs);
}

/** Waits until Services work, and returns how long that took since `startedMs`. */
export async function untilServicesWork(cluster: Cluster, startedMs: number): Promise<InstallationTimes> {
  await untilNodesReachServices(cluster);
  const nodesMs = performance.now() - startedMs;
  await untilDnsIsReady(cluster);
  return { nodesMs, dnsMs: performance.now() - startedMs };
}
