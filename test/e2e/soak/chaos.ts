import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { apiServerPort } from "../cluster/control-plane.ts";
import type { Backend } from "../proxy/images.ts";
import { watcherPort } from "../proxy/install.ts";
import { patternOf, runOn, signalOn } from "../proxy/processes.ts";

/** Part of kpng that chaos can hit. */
export type Part = "watcher" | "backend";

/** Something that goes wrong in the cluster, or that ends again. */
export type Disturbance =
  /** Ends the process with SIGKILL; kubelet restarts the container. */
  | { readonly kind: "kill"; readonly part: Part; readonly node: string }
  /** Deletes the pod; its Deployment or DaemonSet makes another one. */
  | { readonly kind: "delete pod"; readonly part: Part; readonly node: string }
  | { readonly kind: "kill kubelet"; readonly node: string }
  | { readonly kind: "stop API server" }
  | { readonly kind: "start API server" }
  /** Drops all packets between a node and the watchers, or the API server. */
  | { readonly kind: "partition"; readonly node: string; readonly from: "watchers" | "API server" }
  | { readonly kind: "end partition"; readonly node: string }
  /** Changes the image of all pods of a part. */
  | { readonly kind: "change version"; readonly part: Part; readonly to: "previous" | "current" };

/** A disturbance and its time since the start of the soak. */
export interface Step {
  readonly atMs: number;
  readonly disturbance: Disturbance;
}

export interface PlanOptions {
  readonly durationMs: number;
  readonly nodes: readonly string[];
  /** The nodes with watchers. */
  readonly watcherNodes: readonly string[];
  /** Whether images of a previous version exist. */
  readonly hasPrevious: boolean;
}

/** Random whole number from 0 up to but not including its argument. */
type Below = (limit: number) => number;

/**
 * Returns the disturbances of a soak, sorted by time. What begins also ends before `durationMs`, and the versions are
 * then the current ones.
 *
 * The backend of the last node is never killed, and in the second half neither is the watcher of the last watcher node:
 * their memory is measured over time.
 *
 * Pure: the same random numbers make the same plan.
 */
export function planChaos(below: Below, options: PlanOptions): readonly Step[] {
  const { durationMs, nodes, watcherNodes, hasPrevious } = options;
  const steps: Step[] = [];
  const add = (atMs: number, disturbance: Disturbance): void => void steps.push({ atMs, disturbance });
  const oneOf = <T>(values: readonly T[]): T => values[below(values.length)] as T;
  const killable: Readonly<Record<Part, (atMs: number) => readonly string[]>> = {
    backend: () => nodes.slice(0, -1),
    watcher: (atMs) => (atMs < durationMs / 2 ? watcherNodes : watcherNodes.slice(0, -1)),
  };
  const versions: Record<Part, "previous" | "current"> = { watcher: "current", backend: "current" };
  /** When the partition of a node, or the absence of the API server (""), ends. */
  const busyUntilMs = new Map<string, number>();
  const begin = (name: string, atMs: number, limitMs: number): number | undefined => {
    if ((busyUntilMs.get(name) ?? 0) > atMs) return undefined;
    const endMs = atMs + 2_000 + below(limitMs);
    busyUntilMs.set(name, endMs + 2_000);
    return endMs < durationMs ? endMs : undefined;
  };
  for (let atMs = 3_000; atMs < durationMs - 5_000; atMs += 2_000 + below(6_000)) {
    const part = oneOf(["watcher", "backend"] as const);
    const choice = below(hasPrevious ? 12 : 9);
    if (choice < 2) add(atMs, { kind: "kill", part, node: oneOf(killable[part](atMs)) });
    else if (choice < 4) add(atMs, { kind: "delete pod", part, node: oneOf(killable[part](atMs)) });
    else if (choice < 5) add(atMs, { kind: "kill kubelet", node: oneOf(nodes) });
    else if (choice < 8) {
      const node = oneOf(nodes);
      const endMs = begin(node, atMs, 15_000);
      if (endMs === undefined) continue;
      add(atMs, { kind: "partition", node, from: choice < 7 ? "watchers" : "API server" });
      add(endMs, { kind: "end partition", node });
    } else if (choice < 9) {
      const endMs = begin("", atMs, 8_000);
      if (endMs === undefined) continue;
      add(atMs, { kind: "stop API server" });
      add(endMs, { kind: "start API server" });
    } else {
      versions[part] = versions[part] === "current" ? "previous" : "current";
      add(atMs, { kind: "change version", part, to: versions[part] });
    }
  }
  for (const part of ["watcher", "backend"] as const) {
    if (versions[part] === "previous") add(durationMs - 1, { kind: "change version", part, to: "current" });
  }
  return steps.toSorted((a, b) => a.atMs - b.atMs);
}

/** Returns "partition n1 API server", for the log. */
export function describeDisturbance(disturbance: Disturbance): string {
  return Object.values(disturbance).join(" ");
}

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
