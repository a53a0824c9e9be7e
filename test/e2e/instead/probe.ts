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
  isAnswered(node: Node): Promise<boolean> {
    return isAnswered(node, hostAndPort(this.#address, 80));
  }

  /** Waits for an answer and returns how long that took, as `4.2 s`. */
  async untilAnswered(node: Node): Promise<string> {
    return timed(() => until(`a Service answers ${node.name}`, () => this.isAnswered(node), 180_000));
  }

  /**
   * Opens a connection from every node each second until `signal` is aborted. Each is accompanied by one to a pod's own
   * address: if both get no answer, the machine is too busy, not the Service broken.
   *
   * Errors: connections that failed, or a machine too busy for a result.
   */
  async load(signal: AbortSignal): Promise<string> {
    const load = { asked: 0, failed: 0, starved: 0 };
    const ask = async (node: Node): Promise<void> => {
      while (!signal.aborted) {
        const podAddress = this.#podAddresses[load.asked % this.#podAddresses.length] ?? "";
        load.asked++;
        const direct = isAnswered(node, hostAndPort(podAddress, port));
        if (!(await this.isAnswered(node))) (await direct) ? load.failed++ : load.starved++;
        await sleep(1000);
      }
    };
    await Promise.all(this.#cluster.nodes.map(ask));
    const text = `${load.asked} connections, ${load.failed} failed, ${load.starved} while a pod did not answer either`;
    if (load.failed > 0 || load.starved > load.asked / 10) throw new Error(text);
    return text;
  }
}

type Node = Cluster["nodes"][number];

function isAnswered(node: Node, address: string): Promise<boolean> {
  return node.run(["curl", "--silent", "--fail", "--max-time", "2", `http://${address}/hostname`]).then(
    () => true,
    () => false,
  );
}

/** Returns how long `work` took, as `4.2 s`. */
export async function timed(work: () => Promise<unknown>): Promise<string> {
  const startedMs = performance.now();
  await work();
  return `${((performance.now() - startedMs) / 1000).toFixed(1)} s`;
}
