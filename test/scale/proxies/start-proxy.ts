import { join } from "node:path";
import type { Cluster } from "../../cluster/cluster.ts";
import type { IptablesVariant } from "../../kernel/laboratory/legacy-tools.ts";
import { relay } from "../../peer/kube-proxy/relay.ts";
import { bundled } from "../processes.ts";
import { ProxyUnderTest } from "../proxy-under-test.ts";

/** A kind of iptables, or nftables mode. */
export type ProxyVariant = IptablesVariant | "nftables";

const common = ["--hostname-override=n1", "--cluster-cidr=10.0.0.0/8", "--metrics-bind-address=127.0.0.1:10249"];

/** Once an hour: periodic syncs would be counted with the changes. */
const periods = (mode: string): readonly string[] => [`--${mode}-sync-period=1h`, `--${mode}-min-sync-period=0s`];

let started = 0;

/** Starts the real kube-proxy in its own namespace, as a client of the cluster. */
export async function startKubeProxy(cluster: Cluster, path: string, variant: ProxyVariant): Promise<ProxyUnderTest> {
  const apiPort = Number(new URL(cluster.apiServer.url).port);
  started += 1;
  const apiSocket = join(cluster.folder, `api-${started}.sock`);
  const api = relay(apiSocket, apiPort);
  const proxy = await ProxyUnderTest.start(
    variant,
    [
      path,
      `--proxy-mode=${variant === "nftables" ? variant : "iptables"}`,
      // These of iptables mode apply to nftables mode, too.
      ...periods("iptables"),
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
  );
  proxy.onClose(() => api.close());
  return proxy;
}

/** Starts a backend, bundled as in an image, in its own namespace, as a client of the watcher at this socket. */
export function startKpng(
  watcherSocket: string,
  backend: "iptables" | "nft",
  { variant = "nft" }: { readonly variant?: IptablesVariant } = {},
): Promise<ProxyUnderTest> {
  const mode = backend === "nft" ? "nftables" : backend;
  const from = ["--api", `unix://${watcherSocket}`, "--state-dir", "none", ...periods(mode)];
  const command = [process.execPath, bundled(`kpng-${backend}`), ...from, ...common.map(ours)];
  return ProxyUnderTest.start(backend === "iptables" ? variant : "nftables", command, []);
}

/** Returns kpng's name of an option of kube-proxy. Only one differs. */
function ours(option: string): string {
  return option.replace("--hostname-override", "--node-name");
}
