import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { apiServerPort } from "../cluster/control-plane.ts";
import type { Backend } from "../proxy/images.ts";
import { watcherPort } from "../proxy/kpng.ts";
import { patternOf, runOn, signalOn } from "../proxy/processes.ts";
import { type Disturbance, describeDisturbance, type Part } from "./plan.ts";

/**
 * Causes a disturbance in a cluster and returns what happened, for the log: a process may be gone already, and the API
 * server may be down, which is no failure here.
 */
export async function disturb(cluster: Cluster, backend: Backend, disturbance: Disturbance): Promise<string> {
  const text = describeDisturbance(disturbance);
  try {
    await perform(cluster, backend, disturbance);
    return text;
  } catch (error) {
    // What must end for the cluster to recover is not optional.
    if (["start API server", "end partition"].includes(disturbance.kind)) throw error;
    return `${text}: not possible: ${String(error).trimEnd().slice(-200)}`;
  }
}

async function perform(cluster: Cluster, backend: Backend, disturbance: Disturbance): Promise<void> {
  const { kubectl, controlPlane } = cluster;
  const kubeSystem = "--namespace=kube-system";
  const componentOf = (part: Part): string => (part === "watcher" ? "watcher" : backend);
  switch (disturbance.kind) {
    case "kill":
      return signalOn(nodeOf(cluster, disturbance.node), patternOf(disturbance.part, backend), "KILL");
    case "delete pod": {
      const selector = `--selector=app.kubernetes.io/component=${componentOf(disturbance.part)}`;
      const field = `--field-selector=spec.nodeName=${disturbance.node}`;
      await kubectl.run(["delete", "pod", kubeSystem, selector, field, "--wait=false", "--request-timeout=5s"]);
      return;
    }
    case "kill kubelet":
      return signalOn(nodeOf(cluster, disturbance.node), "[k]ubelet --config", "KILL");
    case "stop API server":
      return controlPlane.apiServer.stop();
    case "start API server":
      await untilApiServerRuns(cluster);
      return;
    case "partition": {
      const port = disturbance.from === "watchers" ? watcherPort : apiServerPort;
      // A table of its own; "raw" comes before the rules of kpng.
      const chain = (name: string, match: string): string =>
        `chain ${name} { type filter hook ${name} priority raw; tcp ${match} ${port} drop; };`;
      const table = `table inet partition { ${chain("input", "sport")} ${chain("output", "dport")} }`;
      await runOn(nodeOf(cluster, disturbance.node), ["nft", table]);
      return;
    }
    case "end partition":
      await runOn(nodeOf(cluster, disturbance.node), ["nft", "add table inet partition; delete table inet partition"]);
      return;
    case "change version": {
      const { part, to } = disturbance;
      const tag = to === "current" ? "0.1.0" : to;
      const owner = part === "watcher" ? "deployment/kpng-watcher" : `daemonset/kpng-${backend}`;
      const image = `${part}=kpng-${componentOf(part)}:${tag}`;
      await kubectl.run(["set", "image", kubeSystem, owner, image, "--request-timeout=5s"]);
    }
  }
}

/** Starts the API server again until it answers: its predecessor may still have the port. */
export async function untilApiServerRuns({ controlPlane, kubectl }: Cluster): Promise<void> {
  const { apiServer } = controlPlane;
  const isReady = async (): Promise<boolean> => {
    apiServer.start();
    await kubectl.run(["get", "--raw", "/readyz", "--request-timeout=2s"]);
    return true;
  };
  await until("kube-apiserver is ready", isReady, 120_000, () => apiServer.tail());
}

function nodeOf({ nodes }: Cluster, name: string): Cluster["nodes"][number] {
  const node = nodes.find((each) => each.name === name);
  if (node === undefined) throw new Error(`the cluster has no node ${name}`);
  return node;
}
