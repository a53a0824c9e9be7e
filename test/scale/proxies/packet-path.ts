import { loadavg } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Cluster } from "../../cluster/cluster.ts";
import { slices } from "../iptables-cluster.ts";
import { quantile } from "../proc.ts";
import type { ProxyUnderTest } from "../proxy-under-test.ts";
import { onClusters } from "./bench-clusters.ts";
import { describeShape } from "./measure-proxy.ts";
import { startKpng, startKubeProxy } from "./start-proxy.ts";
import { startWatcher } from "./start-watcher.ts";

/**
 * Measures new connections to Services through the rules of kpng-nft and of kube-proxy in nftables and iptables mode,
 * beside 1, 1 000 and 5 000 other Services: `npm run bench -- packet-path`.
 *
 * All proxies run at once, each in its own network namespace, and are measured in turn, so that other load on the
 * machine meets all of them. The endpoint is in the namespace; "no Service" is a connection to the endpoint itself.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1,1000,5000" },
    rounds: { type: "string", default: "8" },
    connections: { type: "string", default: "3000" },
  },
});
const endpoint = "10.255.0.1";
const targets = 8;
const loop = join(import.meta.dirname, "connect-loop.ts");

/** Adds Services whose endpoint is the measuring process. Returns their cluster IPs with ports. */
async function addTargets({ api }: Cluster): Promise<readonly string[]> {
  const found: string[] = [];
  for (let at = 0; at < targets; at++) {
    const metadata = { name: `target-${at}`, namespace: "default" };
    const spec = { ports: [{ name: "p80", port: 80, targetPort: 8_080 }] };
    await api.create("/api/v1/namespaces/default/services", { apiVersion: "v1", kind: "Service", metadata, spec });
    await api.create(slices, {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { ...metadata, labels: { "kubernetes.io/service-name": metadata.name } },
      addressType: "IPv4",
      ports: [{ name: "p80", port: 8_080, protocol: "TCP" }],
      endpoints: [{ addresses: [endpoint], conditions: { ready: true, serving: true, terminating: false } }],
    });
    const service: object = await api.get(`/api/v1/namespaces/default/services/${metadata.name}`);
    const { clusterIP } = (service as { readonly spec: { readonly clusterIP: string } }).spec;
    found.push(`${clusterIP}:80`);
  }
  return found;
}

/**
 * Prepares the namespace of a proxy, and waits until all targets answer there. No connection is opened before the rules
 * are installed: conntrack would remember it untranslated for two minutes, and a later connection from the same port
 * would get no answer.
 */
async function prepare(proxy: ProxyUnderTest, addresses: readonly string[]): Promise<void> {
  const commands = [
    `ip addr add ${endpoint}/32 dev lo`,
    // Cluster IPs; the rules replace the destination before the packet leaves.
    "ip route add 10.0.0.0/8 dev lo",
    // Entries of closed connections would fill the conntrack table.
    "echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close",
  ];
  await proxy.run(["sh", "-c", commands.join(" && ")]);
  if (!(await proxy.isInstalled(240_000))) throw new Error("the rules are not installed after 240 s");
  const answers = () =>
    proxy.run([process.execPath, loop, String(targets), ...addresses]).then(
      () => true,
      () => false,
    );
  if (!(await proxy.until(answers, 240_000, 1_000))) throw new Error("the Services do not answer within 240 s");
}

await onClusters(values.services, {}, async ({ cluster, shape, socket, kubeProxy }) => {
  const proxies: ProxyUnderTest[] = [];
  try {
    const addresses = await addTargets(cluster);
    const watcher = await startWatcher(cluster, socket);
    const kpng = await startKpng(socket, "nftables");
    proxies.push(kpng);
    await prepare(kpng, addresses);
    const nftables = await startKubeProxy(cluster, kubeProxy, "nftables");
    proxies.push(nftables);
    await prepare(nftables, addresses);
    const iptables = await startKubeProxy(cluster, kubeProxy, "legacy");
    proxies.push(iptables);
    await prepare(iptables, addresses);
    watcher.kill();
    const rows = [
      { name: "kpng-nft, no Service", proxy: kpng, to: [`${endpoint}:8080`] },
      { name: "kpng-nft", proxy: kpng, to: addresses },
      { name: "kube-proxy 1.36, nftables", proxy: nftables, to: addresses },
      { name: "kube-proxy 1.36, iptables-legacy", proxy: iptables, to: addresses },
    ].map((row) => ({ ...row, times: [] as number[], cpuUs: 0 }));
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const row of rows) {
        const { times, cpuUs } = JSON.parse(
          await row.proxy.run([process.execPath, loop, values.connections, ...row.to]),
        );
        row.times.push(...times);
        row.cpuUs += cpuUs;
        await sleep(500);
      }
    }
    process.stdout.write(`${describeShape(shape)} (load ${loadavg()[0]?.toFixed(0)})\n\n`);
    process.stdout.write(
      "| | connect, median | p99 | CPU per connection | connections per CPU-second |\n|---|--:|--:|--:|--:|\n",
    );
    for (const { name, times, cpuUs } of rows) {
      const us = (value: number): string => `${value.toFixed(0)} µs`;
      const each = cpuUs / times.length;
      const cells = [us(quantile(times, 0.5)), us(quantile(times, 0.99)), us(each), (1e6 / each).toFixed(0)];
      process.stdout.write(`| ${name} | ${cells.join(" | ")} |\n`);
    }
    process.stdout.write("\n");
  } finally {
    for (const proxy of proxies) await proxy.close();
  }
});
