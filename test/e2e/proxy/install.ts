import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { Kubectl } from "../cluster/kubectl.ts";
import { hostAndPort } from "../cluster/network.ts";
import type { ProgramPaths } from "../program-paths.ts";
import type { ClusterValues, Installation } from "./installation.ts";

/** Port of the watchers on their nodes. */
const watcherPort = 12090;

/** Number of nodes that run watchers. */
const watcherCount = 2;

/** Returns what a cluster's administrator decides. */
export function valuesOf({ addresses, controlPlane }: Cluster): ClusterValues {
  const watchers = addresses.nodes.slice(0, watcherCount);
  return {
    "api-server": `https://${controlPlane.server}`,
    "cluster-cidr": addresses.podCIDRs.join(","),
    watchers: watchers.map((node) => `https://${hostAndPort(node.addresses[0] ?? "", watcherPort)}`).join(","),
  };
}

/** Labels the nodes that run watchers, and makes their certificate, in the steps of docs/install.md. */
export async function prepareCluster(cluster: Cluster, kpng: Installation["kpng"]): Promise<void> {
  const { kubectl, addresses } = cluster;
  const watchers = addresses.nodes.slice(0, watcherCount);
  for (const { name } of watchers) await kubectl.run(["label", "node", name, "node-role.kubernetes.io/kpng-watcher="]);
  const names = watchers.flatMap((node) => node.addresses);
  await applyCertificate(kubectl, kpng, join(cluster.folder, "certificates"), names);
}

/** Makes the watchers' certificate and applies it, with the commands of docs/install.md. */
async function applyCertificate(
  kubectl: Kubectl,
  [program = "", ...args]: Installation["kpng"],
  folder: string,
  names: readonly string[],
): Promise<void> {
  const options = [...names.flatMap((name) => ["--name", name]), "--folder", folder];
  await promisify(execFile)(program, [...args, "certificates", "serving", ...options]);
  const [key, cert] = ["key", "crt"].map((suffix) => join(folder, `serving.${suffix}`));
  for (const object of [
    ["secret", "tls", "kpng-watcher-tls", `--key=${key}`, `--cert=${cert}`],
    ["configmap", "kpng-ca", `--from-file=${join(folder, "ca.crt")}`],
  ]) {
    const dryRun = ["--dry-run=client", "--output", "json"];
    const made = await kubectl.run(["--namespace", "kube-system", "create", ...object, ...dryRun]);
    await kubectl.run(["apply", "--server-side", "--filename", "-"], made);
  }
}

type KubeProxyMode = "iptables" | "nftables" | "ipvs";

/** Port of kube-proxy's health check, which a test of Kubernetes knows. */
const healthPort = 10256;

/** Starts kube-proxy on every node of a cluster, for comparison. */
async function startKubeProxy(cluster: Cluster, path: string, mode: KubeProxyMode): Promise<void> {
  for (const node of cluster.nodes) {
    const command = kubeProxyCommand(cluster, path, mode, node.name);
    await node.run(["sh", "-c", '"$0" "$@" >/var/log/kube-proxy.log 2>&1 </dev/null &', ...command]);
  }
}

/** Returns the command line of kube-proxy on a node. */
export function kubeProxyCommand(
  { addresses, controlPlane }: Cluster,
  path: string,
  mode: KubeProxyMode,
  nodeName: string,
): readonly string[] {
  const any = addresses.families[0] === "ipv4" ? "0.0.0.0" : "::";
  return [
    path,
    `--kubeconfig=${controlPlane.kubeconfig}`,
    `--hostname-override=${nodeName}`,
    `--cluster-cidr=${addresses.podCIDRs.join(",")}`,
    `--proxy-mode=${mode}`,
    // The size of the conntrack table belongs to the machine.
    "--conntrack-max-per-core=0",
    `--healthz-bind-address=${hostAndPort(any, healthPort)}`,
    `--metrics-bind-address=${hostAndPort(any, 10249)}`,
  ];
}

/** Limit for each wait. Usually it takes seconds, and minutes on a busy machine. */
const limitMs = 300_000;

/** Waits until every node reaches the API server at its Service IP. Errors: after 5 minutes, with the state of pods. */
async function untilNodesReachServices(cluster: Cluster): Promise<void> {
  const url = `https://${hostAndPort(cluster.addresses.kubernetes, 443)}/livez`;
  const ask = ["curl", "--silent", "--show-error", "--fail", "--insecure", "--max-time", "2", url];
  await untilOrReport(cluster, "every node reaches the API server at its Service IP", async () => {
    for (const node of cluster.nodes) await node.run(ask);
    return true;
  });
}

/**
 * Waits until DNS is ready. Its pod reaches the API server at the Service IP, and retries with growing delays, so this
 * takes longer than the Services themselves. Errors: after 5 minutes, with the state of pods.
 */
async function untilDnsIsReady(cluster: Cluster): Promise<void> {
  const command = [
    "wait",
    "--for=condition=Available",
    "deployment/coredns",
    "--namespace=kube-system",
    "--timeout=20s",
  ];
  await untilOrReport(cluster, "DNS is ready", async () => (await cluster.kubectl.run(command)) !== "");
}

async function untilOrReport(cluster: Cluster, what: string, check: () => Promise<boolean>): Promise<void> {
  try {
    await until(what, check, limitMs);
  } catch (cause) {
    throw new Error(`${what}: not within 5 minutes\n${await podReport(cluster)}`, { cause });
  }
}

interface Pod {
  readonly metadata: { readonly name: string };
  readonly status: {
    readonly phase: string;
    readonly containerStatuses?: readonly { readonly ready: boolean; readonly state: unknown }[] | undefined;
  };
}

/** Returns the pods of kube-system that are not ready, why, and the end of their logs: for the message of a failure. */
async function podReport({ kubectl }: Cluster): Promise<string> {
  const namespace = "--namespace=kube-system";
  const list = JSON.parse(await kubectl.run(["get", "pods", namespace, "--output=json"])) as { readonly items: Pod[] };
  const unready = list.items.filter(({ status }) => status.containerStatuses?.every(({ ready }) => ready) !== true);
  const parts = unready.map(async ({ metadata, status }) => {
    const log = kubectl.run(["logs", namespace, metadata.name, "--tail=10"]).catch(String);
    const events = kubectl.run(["events", namespace, `--for=pod/${metadata.name}`]).catch(String);
    return `${metadata.name} ${status.phase} ${JSON.stringify(status.containerStatuses)}\n${await events}\n${await log}`;
  });
  return (await Promise.all(parts)).join("\n");
}

/** Mode of each kube-proxy. */
const kubeProxyModes = {
  "kube-proxy": "iptables",
  "kube-proxy-nftables": "nftables",
  "kube-proxy-ipvs": "ipvs",
} as const;

export type KubeProxy = keyof typeof kubeProxyModes;

export function isKubeProxy(proxy: string): proxy is KubeProxy {
  return proxy in kubeProxyModes;
}

/** Times from the beginning of an installation, in milliseconds. */
interface InstallationTimes {
  /** Until every node reached a Service. */
  readonly nodesMs: number;
  /** Until the cluster's DNS was ready, too. */
  readonly dnsMs: number;
}

/** Installs a proxy, waits until Services work on every node, and returns how long that took. */
export async function installProxy(
  proxy: Installation | KubeProxy,
  cluster: Cluster,
  paths: ProgramPaths,
): Promise<InstallationTimes> {
  const startedMs = performance.now();
  if (typeof proxy === "string") {
    await startKubeProxy(cluster, paths["kube-proxy"], kubeProxyModes[proxy]);
  } else {
    await prepareCluster(cluster, proxy.kpng);
    await proxy.apply(cluster, valuesOf(cluster));
  }
  return untilServicesWork(cluster, startedMs);
}

/** Waits until Services work, and returns how long that took since `startedMs`. */
export async function untilServicesWork(cluster: Cluster, startedMs: number): Promise<InstallationTimes> {
  await untilNodesReachServices(cluster);
  const nodesMs = performance.now() - startedMs;
  await untilDnsIsReady(cluster);
  return { nodesMs, dnsMs: performance.now() - startedMs };
}
