import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../cluster/until.ts";
import { hostAndPort } from "../cluster/addresses.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { agnhostImage } from "../images/test-images.ts";

const labels = { app: "probe" };
const port = 8080;

/** A Service with a pod on every node, which steps of the recovery test ask. */
export class Probe {
  readonly #cluster: Cluster;
  readonly #address: string;

  private constructor(cluster: Cluster, address: string) {
    this.#cluster = cluster;
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
    const probe = new Probe(cluster, address);
    for (const node of nodes) await probe.untilAnswered(node.name);
    return probe;
  }

  /** Asks the Service from a node and returns the name of the pod that answered. Errors: no answer within 2 s. */
  ask(nodeName: string): Promise<string> {
    const url = `http://${hostAndPort(this.#address, 80)}/hostname`;
    return this.#cluster.laboratory.run(nodeName, [
      "curl",
      "--silent",
      "--show-error",
      "--fail",
      "--max-time",
      "2",
      url,
    ]);
  }

  /** Waits for an answer and returns how long that took, in milliseconds. */
  async untilAnswered(nodeName: string, timeoutMs = 180_000): Promise<number> {
    const startedMs = performance.now();
    await until(`a Service answers ${nodeName}`, async () => (await this.ask(nodeName)) !== "", timeoutMs);
    return performance.now() - startedMs;
  }

  /**
   * Opens new connections from every node for `durationMs`, and returns how many of how many were not answered. A long
   * load is a light one, so that other work can use the machine.
   */
  async load(durationMs: number): Promise<{ readonly asked: number; readonly failed: number }> {
    const endMs = performance.now() + durationMs;
    const pauseMs = durationMs > 60_000 ? 1000 : 0;
    let [asked, failed] = [0, 0];
    const askAlways = async (nodeName: string): Promise<void> => {
      while (performance.now() < endMs) {
        asked++;
        await this.ask(nodeName).catch(() => failed++);
        if (pauseMs > 0) await sleep(pauseMs);
      }
    };
    await Promise.all(this.#cluster.nodes.map(({ name }) => askAlways(name)));
    return { asked, failed };
  }
}
