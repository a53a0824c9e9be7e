import { findBinaries } from "../../cluster/binaries.ts";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { nodes, together } from "../../scenario/build.ts";
import { bridgeName, podCIDRs } from "../../scenario/places.ts";
import type { Settings } from "../../scenario/scenario.ts";
import type { Backend, RunningBackend } from "../backends.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { flushNat, flushServices } from "../rules.ts";
import { ApiState, bringPortToNode } from "./api-state.ts";
import { Marker } from "./marker.ts";
import { NodeProcess } from "./node-process.ts";

const programs = ["etcd", "kube-apiserver", "kube-proxy"] as const;

/** Returns the reason why the real kube-proxy cannot run here; undefined if it can. */
export async function whyNoKubeProxy(): Promise<string | undefined> {
  const binaries = await findBinaries(programs);
  return binaries.kind === "missing" ? binaries.reason : undefined;
}

/** A mode of kube-proxy that serves as the oracle. */
type KubeProxyMode = "iptables" | "nftables";

/**
 * Starts the oracle: the real kube-proxy on n1, with a real API server.
 *
 * In nftables mode it serves node ports on all addresses, as scenarios expect.
 *
 * `close` stops both. Cost: four seconds to start.
 */
export async function kubeProxy(
  world: TwoNodes,
  firstMarkerPort?: number,
  mode: KubeProxyMode = "iptables",
): Promise<RunningBackend> {
  const binaries = await findBinaries(programs);
  if (binaries.kind === "missing") throw new Error(binaries.reason);
  const cluster = await startCluster(binaries.paths);
  const detach = await bringPortToNode(world.laboratory, Number(new URL(cluster.apiServer.url).port));
  const api = new ApiState(cluster.api);
  await api.createNodes(nodes);
  const marker = new Marker(world, firstMarkerPort);
  const proxy = new NodeProcess(world.laboratory);
  let present: Settings = {};
  const run = (settings: Settings) =>
    proxy.start([binaries.paths["kube-proxy"], ...kubeProxyOptions(cluster, mode, settings)]);
  let last: Parameters<Backend["apply"]>[0] = { services: [], slices: [] };
  const apply: Backend["apply"] = async (state) => {
    last = state;
    await api.apply(together(state, marker.state));
    await api.apply(together(state, marker.next()));
    await marker.wait(() => proxy.log());
  };
  return {
    proxy: mode === "nftables" ? "kube-proxy-nft" : "kube-proxy",
    loseRules: () => (mode === "nftables" ? flushServices(world, "kube-proxy") : flushNat(world)),
    start: async (settings, state) => {
      present = settings;
      await proxy.stop();
      run(settings);
      await apply(state);
    },
    apply,
    restart: async (signal) => {
      await proxy.stop(signal);
      run(present);
      await apply(last);
    },
    stop: (signal) => proxy.stop(signal),
    cleanUp: async () => {
      // It exits with 1 on kernels without IPVS, so only the remaining rules matter.
      const { stdout, stderr } = await world.laboratory.tryRun("n1", [binaries.paths["kube-proxy"], "--cleanup"]);
      return stdout + stderr;
    },
    log: () => proxy.log(),
    close: async () => {
      await proxy.stop();
      detach();
      await cluster.stop();
    },
  };
}

function kubeProxyOptions(cluster: Cluster, mode: KubeProxyMode, settings: Settings): readonly string[] {
  return [
    `--kubeconfig=${cluster.kubeconfig("admin")}`,
    "--hostname-override=n1",
    `--proxy-mode=${mode}`,
    // Syncs each change at once; the default of one second would dominate the duration of the tests. It applies to
    // nftables mode, too.
    "--iptables-min-sync-period=0s",
    // Not writable in other network namespaces than the machine's.
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
    "--healthz-bind-address=127.0.0.1:10256",
    ...(mode === "nftables" ? nftablesOptions(settings) : proxyOptions(settings)),
  ];
}

/** Returns the settings as options of nftables mode and kpng-nft: with node ports on all addresses, not on one. */
export function nftablesOptions(settings: Settings): readonly string[] {
  const { nodePortAddresses = ["0.0.0.0/0", "::/0"] } = settings;
  return proxyOptions({ ...settings, nodePortAddresses, localhostNodePorts: true });
}

/** Returns the settings as options, which kpng-iptables accepts, too. */
export function proxyOptions(settings: Settings): readonly string[] {
  const { detectLocal = "ClusterCIDR", nodePortAddresses = [], localhostNodePorts = true, masqueradeAll } = settings;
  return [
    ...(detectLocal === "none" ? [] : [`--detect-local-mode=${detectLocal}`]),
    ...(detectLocal === "ClusterCIDR" ? [`--cluster-cidr=${podCIDRs.cluster.v4},${podCIDRs.cluster.v6}`] : []),
    ...(detectLocal === "BridgeInterface" ? [`--pod-bridge-interface=${bridgeName}`] : []),
    // Rules see the bridge and not the links of pods, so the prefix is the start of the bridge's name.
    ...(detectLocal === "InterfaceNamePrefix" ? [`--pod-interface-name-prefix=${bridgeName.slice(0, 3)}`] : []),
    ...(masqueradeAll === true ? ["--masquerade-all"] : []),
    ...(localhostNodePorts ? [] : ["--iptables-localhost-nodeports=false"]),
    ...(nodePortAddresses.length === 0 ? [] : [`--nodeport-addresses=${nodePortAddresses.join(",")}`]),
  ];
}
