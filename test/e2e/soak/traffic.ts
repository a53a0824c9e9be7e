import { resolve } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Protocol } from "@kpng/laboratory/agent/request.ts";
import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { controlPlaneName } from "../cluster/network.ts";
import { agentPort, type Endpoint, servicePort } from "./changed-services.ts";

const name = "agent";
/** Node port of the fixed Service. */
export const fixedNodePort = 30080;

/** Pods that answer with their names, and the Service of all of them, which does not change during a soak. */
export interface AgentPods {
  readonly endpoints: readonly Endpoint[];
  readonly clusterIP: string;
}

/**
 * Runs an agent of the laboratory as a pod on every node, and creates a Service for them. The image of the watcher has
 * the Node.js that they need.
 */
export async function createAgentPods({ kubectl, nodes }: Cluster): Promise<AgentPods> {
  const laboratory = resolve(import.meta.dirname, "../../../services/laboratory");
  const metadata = { name, namespace: "default" };
  const labels = { app: name };
  const field = (fieldPath: string): object => ({ valueFrom: { fieldRef: { fieldPath } } });
  const port = { port: servicePort, targetPort: agentPort, nodePort: fixedNodePort };
  await kubectl.apply([
    {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata,
      spec: {
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            terminationGracePeriodSeconds: 1,
            containers: [
              {
                name,
                image: "kpng-watcher:0.1.0",
                // Without a request, a pod is the last one to get the CPU.
                resources: { requests: { cpu: "250m" } },
                // The agent ends with its standard input.
                stdin: true,
                command: ["node", "/laboratory/src/agent/agent.ts", "$(POD_NAME)", String(agentPort), "$(POD_IP)"],
                env: [
                  { name: "POD_NAME", ...field("metadata.name") },
                  { name: "POD_IP", ...field("status.podIP") },
                ],
                volumeMounts: [{ name: "laboratory", mountPath: "/laboratory", readOnly: true }],
              },
            ],
            volumes: [{ name: "laboratory", hostPath: { path: laboratory, type: "Directory" } }],
          },
        },
      },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata,
      spec: {
        type: "NodePort",
        selector: labels,
        ports: [
          { name: "tcp", protocol: "TCP", ...port },
          { name: "udp", protocol: "UDP", ...port },
        ],
      },
    },
  ]);
  await kubectl.run(["rollout", "status", `daemonset/${name}`, "--timeout=50s"]);
  const pods = await until("every agent has an address", async () => {
    const { items } = JSON.parse(await kubectl.run(["get", "pods", `--selector=app=${name}`, "--output=json"])) as {
      readonly items: readonly AgentPod[];
    };
    return items.length === nodes.length && items.every(({ status }) => status.podIP !== undefined) ? items : false;
  });
  return {
    endpoints: pods.map(({ metadata: { name }, spec, status }) => ({
      name,
      nodeName: spec.nodeName,
      address: status.podIP ?? "",
    })),
    clusterIP: await kubectl.run(["get", "service", name, "--output=jsonpath={.spec.clusterIP}"]),
  };
}

interface AgentPod {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly nodeName: string };
  readonly status: { readonly podIP?: string | undefined };
}

/** Result of {@link SteadyTraffic.end}. */
export interface TrafficTotals {
  /** New connections that were answered. */
  readonly answeredProbes: number;
  /** Bytes and datagrams that came back over connections that stayed open. */
  readonly answeredByFlows: number;
  /** A line for each connection that failed, broke or went to another pod. */
  readonly wrong: readonly string[];
}

/**
 * Share of the datagrams of a flow that may be lost: on a busy machine a socket's buffer overflows now and then. New
 * connections show missing rules.
 */
const toleratedLoss = 0.001;

interface Target {
  readonly client: AgentClient;
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
}

/**
 * Traffic to the Service of the agents, whose endpoints stay: from every node to its cluster IP, and from outside of
 * the cluster to the node port of every node. Each way has one connection that stays open, over TCP and UDP, and new
 * TCP connections at intervals of 50 ms. So no connection has a reason to fail.
 */
export class SteadyTraffic {
  /** Clients on the nodes, by node. */
  readonly clients: ReadonlyMap<string, AgentClient>;
  readonly #targets: readonly Target[];

  private constructor(clients: ReadonlyMap<string, AgentClient>, targets: readonly Target[]) {
    this.clients = clients;
    this.#targets = targets;
  }

  /** Starts the traffic. Errors: a way on which nothing answers within a minute. */
  static async start({ laboratory, nodes }: Cluster, { clusterIP, endpoints }: AgentPods): Promise<SteadyTraffic> {
    const outside = await AgentClient.start(laboratory, controlPlaneName);
    const clients = new Map<string, AgentClient>();
    for (const { name } of nodes) clients.set(name, await AgentClient.start(laboratory, name));
    for (const { address } of endpoints) {
      const target = { protocol: "tcp", address, port: agentPort, timeoutMs: 1_000 } as const;
      const isListening = async (): Promise<boolean> => (await outside.askOnce(target)).kind === "answer";
      await until(`the agent at ${address} listens`, isListening, 60_000);
    }
    const targets = nodes.flatMap(({ name, addresses }) =>
      (["tcp", "udp"] as const).flatMap((protocol): readonly Target[] => [
        { client: clients.get(name) ?? outside, protocol, address: clusterIP, port: servicePort },
        { client: outside, protocol, address: addresses[0] ?? "", port: fixedNodePort },
      ]),
    );
    for (const [id, { client, ...target }] of targets.entries()) {
      const isAnswered = async (): Promise<boolean> =>
        (await client.askOnce({ ...target, timeoutMs: 1_000 })).kind === "answer";
      await until(`${describe({ client, ...target })} is answered`, isAnswered, 60_000);
      await client.send({ kind: "open", id, ...target });
      if (target.protocol === "tcp") await client.send({ kind: "probe", id, ...target });
    }
    return new SteadyTraffic(clients, targets);
  }

  /** Stops the traffic and returns what happened to it. */
  async end(): Promise<TrafficTotals> {
    const wrong: string[] = [];
    let [answeredProbes, answeredByFlows] = [0, 0];
    for (const [id, target] of this.#targets.entries()) {
      if (target.protocol === "tcp") {
        const { answered, failures } = await target.client.send({ kind: "stop probe", id });
        answeredProbes += answered;
        if (failures.length > 0) {
          const examples = [...failures.slice(0, 5), ...failures.slice(-2)].join("; ");
          wrong.push(`${describe(target)}: ${failures.length} new connections failed: ${examples}`);
        }
      }
      const flow = await target.client.send({ kind: "finish", id });
      answeredByFlows += flow.answered;
      const what = `${describe(target)}: open connection`;
      if (flow.ended !== undefined) wrong.push(`${what} ended: ${flow.ended}`);
      else if (flow.answered < flow.sent * (1 - (target.protocol === "udp" ? toleratedLoss : 0)))
        wrong.push(`${what}: sent ${flow.sent}, of which ${flow.answered} came back`);
      await target.client.send({ kind: "end", id });
    }
    return { answeredProbes, answeredByFlows, wrong };
  }
}

function describe({ client, protocol, address, port }: Target): string {
  return `${client.name} → ${address}:${port}/${protocol}`;
}
