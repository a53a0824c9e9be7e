import { until } from "../../cluster/until.ts";
import { hostAndPort } from "../cluster/addresses.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { podReport } from "./pod-report.ts";
import { runOn } from "./processes.ts";

/** Limit for each wait. Usually it takes seconds, and minutes in a guest on a busy machine. */
const limitMs = 300_000;

/** Waits until every node reaches the API server at its Service IP. Errors: after 5 minutes, with the state of pods. */
export async function untilNodesReachServices(cluster: Cluster): Promise<void> {
  const url = `https://${hostAndPort(cluster.addresses.kubernetes, 443)}/livez`;
  const ask = ["curl", "--silent", "--show-error", "--fail", "--insecure", "--max-time", "2", url];
  await untilOrReport(cluster, "every node reaches the API server at its Service IP", async () => {
    for (const node of cluster.nodes) await runOn(node, ask);
    return true;
  });
}

/**
 * Waits until DNS is ready. Its pod reaches the API server at the Service IP, and retries with growing delays, so this
 * takes longer than the Services themselves. Errors: after 5 minutes, with the state of pods.
 */
export async function untilDnsIsReady(cluster: Cluster): Promise<void> {
  const command = [
    "wait",
    "--for=condition=Available",
    "deployment/coredns",
    "--namespace=kube-system",
    "--timeout=20s",
  ];
  await untilOrReport(cluster, "DNS is ready", async () => (await cluster.kubectl.run(command)) !== "");
}

async function untilOrReport(cluster: Cluster, what: string, check: () => Promise<boolean>): Promise<void> {
  try {
    await until(what, check, limitMs);
  } catch (cause) {
    throw new Error(`${what}: not within 5 minutes\n${await podReport(cluster)}`, { cause });
  }
}
