import { join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { NodeProcess } from "@kpng/laboratory/node-process.ts";
import { getThrough, relayIn } from "@kpng/laboratory/relay.ts";
import type { Family } from "@kpng/model/address.ts";
import { until } from "../../cluster/until.ts";
import { nodeAddress, podCidrs } from "./world.ts";

interface KubeProxyOptions {
  readonly laboratory: Laboratory;
  /** Path of the program. */
  readonly program: string;
  readonly kubeconfig: string;
  readonly nodeName: string;
  /** Port of the API server on the loopback address, as in the kubeconfig. */
  readonly apiPort: number;
  /** Unix socket that is connected to the API server. */
  readonly apiSocket: string;
}

/** Output of `iptables-save` and `ip6tables-save`. */
export type SavedRules = Readonly<Record<Family, string>>;

const metricsPort = 10_249;

/**
 * Runs the real kube-proxy in a new network namespace until its rules are accepted.
 *
 * The namespace has no external network: unix sockets, which are files, connect it to the API and to our metrics
 * client.
 *
 * Errors: kube-proxy exits, or `isRight` does not accept its rules in time; with the end of its log.
 */
export async function runKubeProxy(options: KubeProxyOptions, isRight: (rules: SavedRules) => boolean): Promise<void> {
  const { laboratory, nodeName, apiPort, apiSocket } = options;
  const namespace = nodeName;
  await laboratory.add(namespace);
  for (const family of ["v4", "v6"] as const) {
    const address = `${nodeAddress(nodeName, family)}/${family === "v4" ? 32 : 128}`;
    await laboratory.run(namespace, ["ip", "address", "add", address, "dev", "lo"]);
  }
  const metricsSocket = join(laboratory.folder, `${namespace}.metrics`);
  await relayIn(laboratory, namespace, [apiPort, apiSocket], [metricsSocket, metricsPort]);
  const program = new NodeProcess(laboratory, namespace);
  const proxy = program.start([options.program, ...proxyArguments(options)]);
  const details = (): string => `kube-proxy on ${nodeName} says:\n${program.log()}`;
  try {
    await until(
      `kube-proxy on ${nodeName} has programmed its rules`,
      async () => {
        // Its log contains the reason; there is nothing to wait for.
        if (proxy.exitCode !== null) return true;
        return (await hasSynced(metricsSocket)) && isRight({ v4: await save("v4"), v6: await save("v6") });
      },
      120_000,
      details,
    );
    if (proxy.exitCode !== null) throw new Error(`kube-proxy on ${nodeName} has exited\n${details()}`);
  } finally {
    proxy.kill();
  }

  function save(family: Family): Promise<string> {
    return laboratory.run(namespace, [family === "v4" ? "iptables-save" : "ip6tables-save"]);
  }
}

function proxyArguments({ kubeconfig, nodeName }: KubeProxyOptions): readonly string[] {
  return [
    "--proxy-mode=iptables",
    `--kubeconfig=${kubeconfig}`,
    `--hostname-override=${nodeName}`,
    "--detect-local-mode=ClusterCIDR",
    `--cluster-cidr=${podCidrs.v4},${podCidrs.v6}`,
    `--metrics-bind-address=127.0.0.1:${metricsPort}`,
    "--healthz-bind-address=127.0.0.1:10256",
    // conntrack limits apply to the whole machine, not to the namespace.
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
    "--oom-score-adj=0",
  ];
}

/** Returns whether both families have been synced at least once and no sync is pending. */
async function hasSynced(metricsSocket: string): Promise<boolean> {
  const text = await getThrough(metricsSocket, "/metrics");
  const gauge = (name: string, family: string): number =>
    Number(new RegExp(`^kubeproxy_${name}\\{ip_family="${family}"\\} (\\S+)$`, "m").exec(text)?.[1] ?? 0);
  return ["IPv4", "IPv6"].every((family) => {
    const lastMs = gauge("sync_proxy_rules_last_timestamp_seconds", family);
    return lastMs > 0 && lastMs >= gauge("sync_proxy_rules_last_queued_timestamp_seconds", family);
  });
}
