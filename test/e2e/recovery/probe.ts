import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { hostAndPort } from "../cluster/network.ts";
import { agnhostImage } from "../images/test-images.ts";
import { runOn } from "../proxy/processes.ts";

const labels = { app: "probe" };
const port = 8080;

/** A Service with a pod on every node, which steps of the recovery test ask. */
export class Probe {
  readonly #cluster: Cluster;
  readonly #name: string;
  readonly #address: string;

  private constructor(cluster: Cluster, name: string, address: string) {
    this.#cluster = cluster;
    this.#name = name;
    this.#address = address;
  }

  /** Creates the Service `name` and waits until all nodes get answers. */
  static async create(cluster: Cluster, name: string): Promise<Probe> {
    const { kubectl, nodes } = cluster;
    const metadata = { name, namespace: "default" };
    await kubectl.apply([
      {
        apiVersion: "apps/v1",
        kind: "DaemonSet",
        metadata,
        spec: {
          selector: { matchLabels: { ...labels, name } },
          template: {
            metadata: { labels: { ...labels, name } },
            spec: {
              containers: [
                {
                  name: "server",
                  image: agnhostImage,
                  args: ["netexec", `--http-port=${port}`],
                  // Without a request, a pod is the last one to get the CPU.
                  resources: { requests: { cpu: "100m" } },
                  readinessProbe: { httpGet: { path: "/healthz", port }, periodSeconds: 1 },
                },
              ],
            },
          },
        },
      },
      {
        apiVersion: "v1",
        kind: "Service",
        metadata,
        spec: { selector: { ...labels, name }, ports: [{ port: 80, targetPort: port }] },
      },
    ]);
    await kubectl.run(["rollout", "status", `daemonset/${name}`, "--timeout=50s"]);
    const address = await kubectl.run(["get", "service", name, "--output=jsonpath={.spec.clusterIP}"]);
    const probe = new Probe(cluster, name, address);
    for (const node of nodes) await probe.untilAnswered(node.name);
    return probe;
  }

  /** Asks the Service from a node and returns the name of the pod that answered. Errors: no answer within 2 s. */
  ask(nodeName: string): Promise<string> {
    return this.#askAt(nodeName, hostAndPort(this.#address, 80));
  }

  /** Waits for an answer and returns how long that took, in milliseconds. */
  async untilAnswered(nodeName: string, timeoutMs = 180_000): Promise<number> {
    const startedMs = performance.now();
    await until(`a Service answers ${nodeName}`, async () => (await this.ask(nodeName)) !== "", timeoutMs);
    return performance.now() - startedMs;
  }

  /**
   * Opens new connections to the Service from every node for `durationMs`, or until `signal` is aborted. Each is
   * accompanied by one to a pod's own address, at the same time: if both get no answer, the machine is too busy, not
   * the Service broken.
   *
   * A long load is a light one, so that other work can use the machine.
   */
  async load(durationMs: number, signal?: AbortSignal): Promise<Load> {
    const podAddresses = await this.#podAddresses();
    const endMs = performance.now() + durationMs;
    const pauseMs = durationMs > 60_000 ? 1000 : 0;
    const load = { asked: 0, failed: 0, failedAlsoDirectly: 0 };
    const isAnswered = (answer: Promise<string>): Promise<boolean> =>
      answer.then(
        () => true,
        () => false,
      );
    const askAlways = async (nodeName: string): Promise<void> => {
      while (performance.now() < endMs && signal?.aborted !== true) {
        const podAddress = podAddresses[load.asked % podAddresses.length] ?? "";
        load.asked++;
        const [throughService, directly] = await Promise.all([
          isAnswered(this.ask(nodeName)),
          isAnswered(this.#askAt(nodeName, hostAndPort(podAddress, port))),
        ]);
        if (!throughService) directly ? load.failed++ : load.failedAlsoDirectly++;
        if (pauseMs > 0) await sleep(pauseMs);
      }
    };
    await Promise.all(this.#cluster.nodes.map(({ name }) => askAlways(name)));
    return load;
  }

  async #askAt(nodeName: string, hostAndPort: string): Promise<string> {
    const url = `http://${hostAndPort}/hostname`;
    const options = ["--silent", "--show-error", "--fail", "--max-time", "2"];
    const node = this.#cluster.nodes.find(({ name }) => name === nodeName);
    if (node === undefined) throw new Error(`the cluster has no node ${nodeName}`);
    return runOn(node, ["curl", ...options, url]);
  }

  async #podAddresses(): Promise<readonly string[]> {
    const selector = Object.entries({ ...labels, name: this.#name }).map((label) => label.join("="));
    const output = "--output=jsonpath={.items[*].status.podIP}";
    const addresses = await this.#cluster.kubectl.run(["get", "pods", `--selector=${selector}`, output]);
    return addresses.split(" ");
  }
}

/** Numbers of connections; see `Probe.load`. */
interface Load {
  readonly asked: number;
  /** Through the Service there was no answer, but from a pod's own address. */
  readonly failed: number;
  /** There was no answer in either way. */
  readonly failedAlsoDirectly: number;
}
