import { loadavg } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Cluster } from "../../cluster/cluster.ts";
import { describeInterval } from "../interval.ts";
import { slices } from "../iptables-cluster.ts";
import { quantile } from "../proc.ts";
import { pinTo } from "../processes.ts";
import type { ProxyUnderTest } from "../proxy-under-test.ts";
import { onClusters } from "./bench-clusters.ts";
import { describeShape } from "./measure-proxy.ts";
import type { PathSample } from "./path-client.ts";
import { addresses, endpointPort, PathNetwork } from "./path-network.ts";
import { type PrepareNode, startKpng, startKubeProxy } from "./start-proxy.ts";
import { startWatcher } from "./start-watcher.ts";

/**
 * Measures connections, requests and throughput from a pod to a cluster IP, and from outside to a node port, through
 * kpng-ebpf, kpng-nft, kpng-iptables and kube-proxy in nftables and iptables mode, beside 1 and 5 000 other Services:
 * `npm run bench -- packet-path`.
 *
 * All proxies run at once, each with network namespaces of its own, and are measured in turn in each round, so that
 * other load on the machine meets all of them. They are suspended meanwhile; their rules and programs stay. "no
 * Service" is the endpoint itself, through the node of kpng-nft. Intervals are of the means of rounds, 95 %.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1,5000" },
    rounds: { type: "string", default: "10" },
    connections: { type: "string", default: "3000" },
    requests: { type: "string", default: "5000" },
    mebibytes: { type: "string", default: "512" },
  },
});
const targets = 8;
const client = join(import.meta.dirname, "path-client.ts");
const kinds = { connect: values.connections, request: values.requests, transfer: values.mebibytes } as const;

/** Places that lead to the endpoint, by the namespace of the client. *Shape:* `10.96.0.11:80`. */
type Ways = Readonly<Record<"pod" | "outside", readonly string[]>>;

const endpoint = [`${addresses.endpoint}:${endpointPort}`];
const direct: Ways = { pod: endpoint, outside: endpoint };

/** Adds Services that lead to the endpoint. */
async function addTargets({ api }: Cluster): Promise<Ways> {
  const found = { pod: [] as string[], outside: [] as string[] };
  for (let at = 0; at < targets; at++) {
    const metadata = { name: `target-${at}`, namespace: "default" };
    const spec = { type: "NodePort", ports: [{ name: "p80", port: 80, targetPort: endpointPort }] };
    await api.create("/api/v1/namespaces/default/services", { apiVersion: "v1", kind: "Service", metadata, spec });
    await api.create(slices, {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { ...metadata, labels: { "kubernetes.io/service-name": metadata.name } },
      addressType: "IPv4",
      ports: [{ name: "p80", port: endpointPort, protocol: "TCP" }],
      endpoints: [
        {
          addresses: [addresses.endpoint],
          conditions: { ready: true, serving: true, terminating: false },
          nodeName: "n1",
        },
      ],
    });
    const service: object = await api.get(`/api/v1/namespaces/default/services/${metadata.name}`);
    const { clusterIP, ports } = (
      service as { readonly spec: { readonly clusterIP: string; readonly ports: readonly { nodePort: number }[] } }
    ).spec;
    found.pod.push(`${clusterIP}:80`);
    found.outside.push(`${addresses.node}:${ports[0]?.nodePort}`);
  }
  return found;
}

/** A proxy and the namespaces around it. */
interface Subject {
  readonly proxy: ProxyUnderTest;
  readonly network: PathNetwork;
}

async function ask({ proxy, network }: Subject, from: keyof Ways, words: readonly string[]): Promise<PathSample> {
  const command = [...pinTo("load"), process.execPath, client, ...words];
  return JSON.parse(await proxy.run(from === "pod" ? network.inCgroup(command) : command, from));
}

/**
 * Starts a proxy, waits until all targets answer, and suspends it. No connection is opened before the rules are
 * installed: conntrack would remember it untranslated for two minutes, and a later connection from the same port would
 * get no answer.
 */
async function begin(
  subjects: Subject[],
  ways: Ways,
  start: (prepare: PrepareNode, network: PathNetwork) => Promise<ProxyUnderTest>,
  hasPrograms = false,
): Promise<Subject> {
  const network = new PathNetwork(hasPrograms);
  const proxy = await start(network.build, network);
  proxy.onClose(() => network[Symbol.dispose]());
  const subject = { proxy, network };
  subjects.push(subject);
  // Entries of closed connections would fill the conntrack table.
  const setting = "echo 1 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close";
  await proxy.run(["sh", "-c", setting]);
  if (!(await proxy.isInstalled(240_000))) throw new Error("the rules are not installed after 240 s");
  const answers = async (): Promise<boolean> => {
    try {
      for (const from of ["pod", "outside"] as const)
        await ask(subject, from, ["connect", String(targets), ...ways[from]]);
      return true;
    } catch {
      return false;
    }
  };
  if (!(await proxy.until(answers, 240_000, 1_000))) throw new Error("the Services do not answer within 240 s");
  proxy.suspend();
  return subject;
}

/** Figures of one row, a number for each round. */
interface Row {
  readonly name: string;
  readonly subject: Subject;
  readonly ways: Ways;
  readonly figures: Readonly<
    Record<"perSecond" | "connectUs" | "cpuUs" | "requestUs" | "p99Us" | "gigabits", number[]>
  >;
}

const columns: readonly (readonly [title: string, figure: keyof Row["figures"], digits: number])[] = [
  ["connections per second", "perSecond", 0],
  ["connect, median (µs)", "connectUs", 1],
  ["CPU of the client per connection (µs)", "cpuUs", 1],
  ["request, median (µs)", "requestUs", 1],
  ["request, p99 (µs)", "p99Us", 0],
  ["throughput (Gbit/s)", "gigabits", 1],
];

async function measure({ subject, ways, figures }: Row, from: keyof Ways, kind: keyof typeof kinds): Promise<void> {
  const { times, cpuUs } = await ask(subject, from, [kind, kinds[kind], ...ways[from]]);
  const totalUs = times.reduce((sum, us) => sum + us, 0);
  if (kind === "connect") {
    figures.perSecond.push((1e6 * times.length) / totalUs);
    figures.connectUs.push(quantile(times, 0.5));
    figures.cpuUs.push(cpuUs / times.length);
  } else if (kind === "request") {
    figures.requestUs.push(quantile(times, 0.5));
    figures.p99Us.push(quantile(times, 0.99));
  } else figures.gigabits.push((Number(values.mebibytes) * 8 * 1024 * 1024) / (totalUs * 1e3));
}

await onClusters(values.services, {}, async ({ cluster, shape, socket, kubeProxy }) => {
  const subjects: Subject[] = [];
  try {
    const ways = await addTargets(cluster);
    const watcher = await startWatcher(cluster, socket);
    const kpng = (backend: "nft" | "iptables" | "ebpf") =>
      begin(
        subjects,
        ways,
        (prepare, { cgroup }) =>
          startKpng(socket, backend, {
            ...{ variant: "legacy", prepare },
            args: cgroup === undefined ? [] : ["--cgroup", cgroup],
          }),
        backend === "ebpf",
      );
    const theirs = (variant: "nftables" | "legacy") =>
      begin(subjects, ways, (prepare) => startKubeProxy(cluster, kubeProxy, variant, prepare));
    const nft = await kpng("nft");
    const started = [
      { name: "no Service", subject: nft, ways: direct },
      { name: "kpng-ebpf", subject: await kpng("ebpf"), ways },
      { name: "kpng-nft", subject: nft, ways },
      { name: "kpng-iptables, iptables-legacy", subject: await kpng("iptables"), ways },
      { name: "kube-proxy 1.36, nftables", subject: await theirs("nftables"), ways },
      { name: "kube-proxy 1.36, iptables-legacy", subject: await theirs("legacy"), ways },
    ];
    watcher.kill();
    process.stdout.write(`${describeShape(shape)}\n\n`);
    for (const from of ["pod", "outside"] as const) {
      const rows = started.map((row): Row => {
        const figures = { perSecond: [], connectUs: [], cpuUs: [], requestUs: [], p99Us: [], gigabits: [] };
        return { ...row, figures };
      });
      for (let round = 0; round < Number(values.rounds); round++) {
        // Each row is the first one of some rounds.
        const turn = [...rows.slice(round % rows.length), ...rows.slice(0, round % rows.length)];
        for (const kind of ["connect", "request", "transfer"] as const) {
          for (const row of turn) {
            await measure(row, from, kind);
            await sleep(200);
          }
        }
      }
      const way = from === "pod" ? "pod → cluster IP" : "outside → node port";
      process.stdout.write(
        `| ${way} | ${columns.map(([title]) => title).join(" | ")} |\n|---|--:|--:|--:|--:|--:|--:|\n`,
      );
      for (const { name, figures } of rows) {
        const cells = columns.map(([, figure, digits]) => describeInterval(figures[figure], digits));
        process.stdout.write(`| ${name} | ${cells.join(" | ")} |\n`);
      }
      process.stdout.write(`\n${values.rounds} rounds, load ${loadavg()[0]?.toFixed(0)}\n\n`);
    }
  } finally {
    for (const { proxy } of subjects) await proxy.close();
  }
});
