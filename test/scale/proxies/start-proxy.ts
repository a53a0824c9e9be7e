import { join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { Cluster } from "../../cluster/cluster.ts";
import type { IptablesVariant } from "../../kernel/laboratory/legacy-tools.ts";
import { relay } from "../../peer/kube-proxy/relay.ts";
import { bundled } from "../processes.ts";
import { ProxyUnderTest } from "../proxy-under-test.ts";

/** A kind of iptables, nftables mode, or ipvs mode, which needs a kernel with IPVS. */
export type ProxyVariant = IptablesVariant | "nftables" | "ipvs";

const common = ["--hostname-override=n1", "--cluster-cidr=10.0.0.0/8", "--metrics-bind-address=127.0.0.1:10249"];

/** Once an hour: periodic syncs would be counted with the changes. */
const periods = (mode: string): readonly string[] => [`--${mode}-sync-period=1h`, `--${mode}-min-sync-period=0s`];

let started = 0;

/** Changes the namespace "node" of a proxy before the proxy starts there. */
export type PrepareNode = (laboratory: Laboratory) => Promise<void>;

/** Starts the real kube-proxy in its own namespace, as a client of the cluster. */
export async function startKubeProxy(
  cluster: Cluster,
  path: string,
  variant: ProxyVariant,
  prepare?: PrepareNode,
): Promise<ProxyUnderTest> {
  const apiPort = Number(new URL(cluster.apiServer.url).port);
  started += 1;
  const apiSocket = join(cluster.folder, `api-${started}.sock`);
  const api = relay(apiSocket, apiPort);
  const proxy = await ProxyUnderTest.start(
    variant,
    [
      path,
      `--proxy-mode=${variant === "nftables" || variant === "ipvs" ? variant : "iptables"}`,
      // These of iptables mode apply to nftables mode, too.
      ...periods(variant === "ipvs" ? "ipvs" : "iptables"),
      `--kubeconfig=${cluster.kubeconfig("admin")}`,
      "--detect-local-mode=ClusterCIDR",
      "--healthz-bind-address=127.0.0.1:10256",
      // conntrack limits apply to the whole machine, not to the namespace.
      "--conntrack-max-per-core=0",
      "--conntrack-tcp-timeout-established=0s",
      "--conntrack-tcp-timeout-close-wait=0s",
      "--oom-score-adj=0",
      ...common,
    ],
    [[apiPort, apiSocket]],
    prepare,
  );
  proxy.onClose(() => api.close());
  return proxy;
}

/** A backend of kpng that benchmarks compare with kube-proxy. */
export type ComparedBackend = "iptables" | "nft" | "ebpf" | "ipvs";

/** Options of {@link startKpng}. */
export interface KpngOptions {
  /** Of kpng-iptables. Default: "nft". */
  readonly variant?: IptablesVariant | undefined;
  readonly prepare?: PrepareNode | undefined;
  /** More options of the backend. */
  readonly args?: readonly string[];
}

/** Starts a backend, bundled as in an image, in its own namespace, as a client of the watcher at this socket. */
export function startKpng(
  watcherSocket: string,
  backend: ComparedBackend,
  { variant = "nft", prepare, args = [] }: KpngOptions = {},
): Promise<ProxyUnderTest> {
  const mode = backend === "nft" ? "nftables" : backend;
  const from = ["--api", `unix://${watcherSocket}`, "--state-dir", "none", ...periods(mode)];
  const command = [process.execPath, bundled(`kpng-${backend}`), ...from, ...common.map(ours), ...args];
  return ProxyUnderTest.start(backend === "iptables" ? variant : "nftables", command, [], prepare);
}

/** Returns kpng's name of an option of kube-proxy. Only one differs. */
function ours(option: string): string {
  return option.replace("--hostname-override", "--node-name");
}
