import { execFile } from "node:child_process";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { hostAndPort } from "../cluster/addresses.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { Backend } from "./images.ts";

/** Folder of the manifests. */
export const manifests = resolve(import.meta.dirname, "../../../deploy/kubernetes");

/** Port of the watchers on their nodes. */
export const watcherPort = 12090;

/** Number of nodes that run watchers. */
export const watcherCount = 2;

/**
 * Applies kpng's manifests to a cluster, in the steps of docs/install.md, without changes to any of them.
 *
 * Returns when everything is applied; the pods start then.
 */
export async function applyKpng(cluster: Cluster, backend: Backend): Promise<void> {
  await prepareCluster(cluster);
  await cluster.kubectl.run(["apply", "--kustomize", join(manifests, "overlays/replace-kube-proxy", backend)]);
}

/** Applies what a cluster's administrator decides: which nodes run watchers, the addresses, and the certificate. */
export async function prepareCluster(cluster: Cluster): Promise<void> {
  const { kubectl, addresses, controlPlane } = cluster;
  const watchers = addresses.nodes.slice(0, watcherCount);
  for (const { name } of watchers) await kubectl.run(["label", "node", name, "node-role.kubernetes.io/kpng-watcher="]);
  await kubectl.apply([
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "kpng", namespace: "kube-system" },
      data: {
        "api-server": `https://${controlPlane.server}`,
        "cluster-cidr": addresses.podCIDRs.join(","),
        watchers: watchers.map((node) => `https://${hostAndPort(node.addresses[0] ?? "", watcherPort)}`).join(","),
      },
    },
  ]);
  const names = watchers.flatMap((node) => node.addresses);
  const certificate = await makeCertificate(join(cluster.folder, "certificates"), names);
  await kubectl.run(["apply", "--server-side", "--filename", "-"], certificate);
}

/** Returns the manifest of the watchers' certificate, with the command of docs/install.md. */
async function makeCertificate(folder: string, names: readonly string[]): Promise<string> {
  const program = resolve(import.meta.dirname, "../../../services/cli/src/main.ts");
  const options = [...names.flatMap((name) => ["--name", name]), "--output", "manifest", "--folder", folder];
  return (await promisify(execFile)(process.execPath, [program, "certificates", "serving", ...options])).stdout;
}
