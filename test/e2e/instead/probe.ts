import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { hostAndPort } from "../cluster/network.ts";
import { agnhostImage } from "../images/test-images.ts";

const port = 8080;

/** A Service with a pod on every node, which moves and recoveries ask. */
export class Probe {
  readonly #cluster: Cluster;
  readonly #address: string;
  readonly #podAddresses: readonly string[];

  private constructor(cluster: Cluster, address: string, podAddresses: readonly string[]) {
    this.#cluster = cluster;
    this.#address = address;
    this.#podAddresses = podAddresses;
  }

  /** Creates the Service `name` and waits until all nodes get answers. */
  static async create(cluster: Cluster, name: string): Promise<Probe> {
    const { kubectl, nodes } = cluster;
    const metadata = { name, namespace: "default" };
    const labels = { app: name };
    // Without a request, a pod is the last one to get the CPU.
    const resources = { requests: { cpu: "100m" } };
    const readinessProbe = { httpGet: { path: "/healthz", port }, periodSeconds: 1 };
    const args = ["netexec", `--http-port=${port}`];
    const containers = [{ name: "server", image: agnhostImage, args, resources, readinessProbe }];
    const template = { metadata: { labels }, spec: { containers } };
    await kubectl.apply([
      { apiVersion: "apps/v1", kind: "DaemonSet", metadata, spec: { selector: { matchLabels: labels }, template } },
      {
        apiVersion: "v1",
        kind: "Service",
        metadata,
        spec: { selector: labels, ports: [{ port: 80, targetPort: port }] },
      },
    ]);
    await kubectl.run(["rollout", "status", `daemonset/${name}`, "--timeout=50s"]);
    const address = await kubectl.run(["get", "service", name, "--output=jsonpath={.spec.clusterIP}"]);
    const pods = ["get", "pods", `--selector=app=${name}`, "--output=jsonpath={.items[*].status.podIP}"];
    const probe = new Probe(cluster, address, (await kubectl.run(pods)).split(" "));
    for (const node of nodes) await probe.untilAnswered(node);
    return probe;
  }

  /** Whether the Service answers a node within 2 s. */
  async isAnswered(node: Node): Promise<boolean> {
    return (await countAnswers(node, hostAndPort(this.#address, 80), 1)) === 1;
  }

  /** Waits for an answer and returns how long that took, as `4.2 s`. */
  async untilAnswered(node: Node): Promise<string> {
    return timed(() => until(`a Service answers ${node.name}`, () => this.isAnswered(node), 180_000));
  }

  /**
   * Opens `perSecond` connections from every node each second until `signal` is aborted. One more each second goes to a
   * pod's own address: if that gets no answer either, the machine is too busy, not the Service broken.
   *
   * Errors: connections that failed, or a machine too busy for a result.
   */
  async load(signal: AbortSignal, perSecond = 1): Promise<string> {
    const load = { asked: 0, failed: 0, starved: 0 };
    const ask = async (node: Node): Promise<void> => {
      while (!signal.aborted) {
        const podAddress = this.#podAddresses[(load.asked / perSecond) % this.#podAddresses.length] ?? "";
        load.asked += perSecond;
        const [answered, direct] = await Promise.all([
          countAnswers(node, hostAndPort(this.#address, 80), perSecond),
          countAnswers(node, hostAndPort(podAddress, port), 1),
          sleep(1000),
        ]);
        if (direct === 1) load.failed += perSecond - answered;
        else load.starved += perSecond - answered;
      }
    };
    await Promise.all(this.#cluster.nodes.map(ask));
    const text = `${load.asked} connections, ${load.failed} failed, ${load.starved} while a pod did not answer either`;
    if (load.failed > 0 || load.starved > load.asked / 10) throw new Error(text);
    return text;
  }
}

type Node = Cluster["nodes"][number];

/** Opens `count` connections within a second, and returns how many of them got an answer within 2 s. */
async function countAnswers(node: Node, address: string, count: number): Promise<number> {
  const options = ["--silent", "--max-time", "2", "--rate", `${count}/s`, "--header", "Connection: close"];
  const print = ["--output", "/dev/null", "--write-out", "%{http_code}\\n"];
  // It fails if one of the connections does.
  const command = ["sh", "-c", '"$@" || true', "sh", "curl", ...options, ...print];
  const codes = await node.run([...command, `http://${address}/hostname?[1-${count}]`]);
  return codes.split("\n").filter((code) => code === "200").length;
}

/** Returns how long `work` took, as `4.2 s`. */
export async function timed(work: () => Promise<unknown>): Promise<string> {
  const startedMs = performance.now();
  await work();
  return `${((performance.now() - startedMs) / 1000).toFixed(1)} s`;
}
