import { ApiServerStates } from "@kpng/laboratory/check/api-server-states.ts";
import { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { findBinaries } from "../../cluster/binaries.ts";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { flushNat, flushServices, type OwnProxy, patienceMs, profileOf } from "./kpng-proxy.ts";

const programs = ["etcd", "kube-apiserver", "kube-proxy"] as const;

/** Returns the reason why the real kube-proxy cannot run here; undefined if it can. */
export async function whyNoKubeProxy(): Promise<string | undefined> {
  const binaries = await findBinaries(programs);
  return binaries.kind === "missing" ? binaries.reason : undefined;
}

/** A mode of kube-proxy that serves as the oracle. */
export type KubeProxyMode = "iptables" | "nftables";

/** An API server, and kube-proxy as options of `kpng conformance packets`. */
interface KubeProxyCluster {
  readonly cluster: Cluster;
  readonly kubeconfig: string;
  readonly proxy: OwnProxy;
}

/** Starts an API server for kube-proxy, in four seconds. The caller stops it. */
export async function startKubeProxyCluster(mode: KubeProxyMode): Promise<KubeProxyCluster> {
  const binaries = await findBinaries(programs);
  if (binaries.kind === "missing") throw new Error(binaries.reason);
  const cluster = await startCluster(binaries.paths);
  const program = binaries.paths["kube-proxy"];
  const proxy: OwnProxy = {
    command: [
      ...[program, "--kubeconfig={kubeconfig}", "--hostname-override={node}", `--proxy-mode=${mode}`],
      // Syncs each change at once; the default of one second would dominate the duration of the tests. It applies to
      // nftables mode, too.
      "--iptables-min-sync-period=0s",
      // Not writable in other network namespaces than the machine's.
      ...["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s"],
      ...["--conntrack-tcp-timeout-close-wait=0s", "--healthz-bind-address=127.0.0.1:10256", "{options}"],
    ],
    // It exits with 1 on kernels without IPVS, so only the remaining rules matter.
    cleanup: `${program} --cleanup || true`,
    loseRules: mode === "nftables" ? flushServices("kube-proxy") : flushNat,
    exceptions: `test/kernel/backend/kube-proxy-${mode}.exceptions`,
  };
  return { cluster, kubeconfig: cluster.kubeconfig("admin"), proxy };
}

/**
 * Starts the oracle: the real kube-proxy on n1, with a real API server.
 *
 * In nftables mode it serves node ports on all addresses, as scenarios expect. `close` stops both.
 */
export async function kubeProxy(
  world: TwoNodes,
  firstMarkerPort?: number,
  mode: KubeProxyMode = "iptables",
): Promise<CommandProxy> {
  const { cluster, kubeconfig, proxy } = await startKubeProxyCluster(mode);
  const states = await ApiServerStates.start(world.laboratory, {
    call: (method, path, body) => cluster.api.call(method, path, body),
    kubeconfig,
    port: Number(new URL(cluster.apiServer.url).port),
    onClose: () => cluster.stop(),
  });
  const { command, cleanup, loseRules } = proxy;
  const options = { command, cleanup, loseRules, profile: profileOf(proxy) };
  return CommandProxy.open(world, states, { ...options, timeoutMs: patienceMs, firstMarkerPort });
}
