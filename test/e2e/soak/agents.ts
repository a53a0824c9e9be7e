import { resolve } from "node:path";
import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
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
