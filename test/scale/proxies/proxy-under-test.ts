import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { childrenOf, NodeProcess } from "@kpng/laboratory/node-process.ts";
import { getThrough, relay, relayIn } from "@kpng/laboratory/relay.ts";
import type { Cluster } from "../../cluster/cluster.ts";
import { type IptablesVariant, useLegacyTools } from "../../kernel/laboratory/legacy-tools.ts";
import { usageOf } from "../proc.ts";
import { bundled } from "../processes.ts";

/** A kind of iptables, or nftables mode. */
type ProxyVariant = IptablesVariant | "nftables";

const metricsPort = 10_249;

/** Service proxy in its own network namespace, observed through unix sockets. */
export class ProxyUnderTest {
  readonly #laboratory: Laboratory;
  readonly #process: NodeProcess;
  readonly #child: ChildProcess;
  readonly #metricsSocket: string;
  /** Its rules are in nftables, and not in iptables-nft. */
  readonly isNftables: boolean;
  readonly #ends: (() => void)[] = [];

  private constructor(laboratory: Laboratory, command: readonly string[], metricsSocket: string, isNftables: boolean) {
    this.isNftables = isNftables;
    this.#laboratory = laboratory;
    this.#process = new NodeProcess(laboratory, "node");
    this.#child = this.#process.start(command);
    this.#metricsSocket = metricsSocket;
  }

  /**
   * Starts a proxy that serves metrics on 127.0.0.1:10249. `relays` are its connections to the machine outside: each
   * connects a port of its loopback address with a unix socket.
   */
  static async start(
    variant: ProxyVariant,
    command: readonly string[],
    relays: readonly (readonly [port: number, socket: string])[],
  ): Promise<ProxyUnderTest> {
    const laboratory = await Laboratory.open();
    await laboratory.add("node");
    if (variant === "legacy") await useLegacyTools(laboratory, "node");
    const metricsSocket = join(laboratory.folder, "metrics.sock");
    await relayIn(laboratory, "node", ...relays, [metricsSocket, metricsPort]);
    return new ProxyUnderTest(laboratory, command, metricsSocket, variant === "nftables");
  }

  /** RSS of the process, without its tools. */
  get rssBytes(): number {
    const [pid] = childrenOf(this.#child.pid ?? 0);
    if (pid === undefined) throw new Error(`the proxy has exited: ${this.#process.log()}`);
    return usageOf(pid).rssBytes;
  }

  /** Returns the sums of metrics' samples except IPv6; 0 if a metric or the endpoint does not exist yet. */
  async metrics(...names: readonly string[]): Promise<readonly number[]> {
    if (this.#child.exitCode !== null) throw new Error(`the proxy has exited: ${this.#process.log()}`);
    // Before the proxy listens, nothing answers.
    const body = await getThrough(this.#metricsSocket, "/metrics").catch(() => "");
    const lines = body.split("\n").filter((line) => !line.includes('ip_family="IPv6"'));
    return names.map((name) =>
      lines
        .filter((line) => /^[^{ ]+/.exec(line)?.[0] === name)
        .reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0),
    );
  }

  /** Waits until `isSo` returns true; returns false after `limitMs`. */
  async until(isSo: () => Promise<boolean>, limitMs: number, everyMs = 20): Promise<boolean> {
    const deadlineMs = performance.now() + limitMs;
    while (!(await isSo())) {
      if (performance.now() > deadlineMs) return false;
      await sleep(everyMs);
    }
    return true;
  }

  /** Waits for the first full sync; returns false if there was none within `limitMs`. */
  isInstalled(limitMs: number): Promise<boolean> {
    const syncs = "kubeproxy_sync_full_proxy_rules_duration_seconds_count";
    return this.until(async () => (await this.metrics(syncs)).some((count) => count > 0), limitMs, 200);
  }

  /** Returns the installed IPv4 rules. */
  async rules(): Promise<string> {
    return this.#laboratory.run("node", this.isNftables ? ["nft", "list", "ruleset", "ip"] : ["iptables-save"]);
  }

  /** Calls `end` when the proxy is closed. */
  onClose(end: () => void): void {
    this.#ends.push(end);
  }

  async close(): Promise<void> {
    await this.#laboratory.close();
    for (const end of this.#ends) end();
  }
}

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

/** Starts kpng-nft or kpng-iptables, bundled as in an image, in its own namespace, as a client of this watcher. */
export function startKpng(watcherSocket: string, variant: ProxyVariant): Promise<ProxyUnderTest> {
  const [backend, mode] =
    variant === "nftables" ? (["kpng-nft", "nftables"] as const) : (["kpng-iptables", "iptables"] as const);
  const from = ["--api", `unix://${watcherSocket}`, "--state-dir", "none", ...periods(mode)];
  const own = common.map((option) => option.replace("--hostname-override", "--node-name"));
  return ProxyUnderTest.start(variant, [process.execPath, bundled(backend), ...from, ...own], []);
}
