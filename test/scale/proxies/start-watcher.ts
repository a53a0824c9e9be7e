import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../../cluster/cluster.ts";
import { freePorts } from "../../cluster/ports.ts";

/** Starts a watcher of a cluster that serves a unix socket, and waits until it is ready. */
export async function startWatcher(cluster: Cluster, socket: string): Promise<ChildProcess> {
  const main = join(import.meta.dirname, "../../../services/cli/src/main.ts");
  const [port = 0] = await freePorts(1);
  const child = spawn(
    process.execPath,
    [
      ...[main, "kube", "--kubeconfig", cluster.kubeconfig("admin"), "to-api", "--listen", `unix://${socket}`],
      ...["--healthz-bind-address", `127.0.0.1:${port}`, "--log-level", "error"],
    ],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  const isReady = () =>
    fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) await sleep(50);
  return child;
}
