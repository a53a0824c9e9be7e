import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { makeTempFolder, testCache } from "../../cluster/test-cache.ts";
import { until } from "../../cluster/until.ts";
import type { ProgramPaths } from "../program-paths.ts";
import { removeControlGroups } from "./control-groups.ts";
import { type ControlPlane, makeControlPlane } from "./control-plane.ts";
import { makeDns } from "./dns.ts";
import { GuestNodes } from "./guest-nodes.ts";
import { type ImageSource, makeImageStore } from "./image-store.ts";
import { Kubectl } from "./kubectl.ts";
import { type Addresses, addControlPlane, addressesOf, type Families } from "./network.ts";
import { type ClusterNode, makeNodes } from "./node.ts";

interface ClusterOptions {
  readonly paths: ProgramPaths;
  readonly images: ImageSource;
  readonly families: Families;
  /** At most 9. */
  readonly nodeCount: number;
  /** Whether logs stay in the folder after the end. Default false. */
  readonly keepsLogs?: boolean | undefined;
  /** Whether the nodes are in a guest with another kernel. Default false. */
  readonly inGuest?: boolean | undefined;
}

/** Limit for the API server, and for all nodes; they take seconds, and minutes in a guest on a busy machine. */
const startLimitMs = 300_000;

/**
 * Kubernetes cluster on this machine, without a Service proxy: control plane, nodes with kubelet and containerd, and
 * the DNS Deployment. Everything is inside one laboratory and one folder, and ends with this process.
 */
export interface Cluster {
  readonly laboratory: Laboratory;
  readonly addresses: Addresses;
  readonly controlPlane: ControlPlane;
  readonly nodes: readonly ClusterNode[];
  readonly kubectl: Kubectl;
  /** Folder for logs and other files. */
  readonly folder: string;
  /** Ends all programs and removes their files, except for logs if they are kept. */
  stop(): Promise<void>;
}

/**
 * Starts a cluster and waits until its nodes are ready. Pods of its DNS need a Service proxy to become ready.
 *
 * *Cost:* 15 to 40 s on two cores.
 *
 * Errors: LaboratoryUnavailable; a program that does not become ready, with the end of its log.
 */
export async function startCluster(options: ClusterOptions): Promise<Cluster> {
  const { paths } = options;
  const folder = makeTempFolder(testCache("e2e"));
  const addresses = addressesOf(options.families, options.nodeCount);
  // The nodes start from copies of one store: each would import the same images at the same time.
  const imageStore = join(folder, "images");
  const laboratory = await Laboratory.open();
  let guest: GuestNodes | undefined;
  const stop = async (): Promise<void> => {
    await guest?.stop();
    await laboratory.close();
    await removeControlGroups();
    if (options.keepsLogs === true) removeAllButLogs(folder);
    else rmSync(folder, { recursive: true, force: true });
  };
  try {
    await makeImageStore(options.images, imageStore);
    await addControlPlane(laboratory, addresses);
    const controlPlane = makeControlPlane({
      laboratory,
      folder: join(folder, "control-plane"),
      addresses,
      paths,
    });
    const { kubeconfig } = controlPlane;
    const kubectl = new Kubectl(laboratory, paths.kubectl, kubeconfig);
    const nodeOptions = { laboratory, addresses, kubeconfig, kubeletPath: paths.kubelet };
    if (options.inGuest === true) guest = await GuestNodes.start({ ...nodeOptions, folder });
    const nodes = guest?.nodes ?? (await makeNodes({ ...nodeOptions, imageStore }, folder));
    await startControlPlane(controlPlane, kubectl);
    await kubectl.apply(addresses.nodes.map(makeNodeObject));
    for (const node of nodes) await node.start();
    await kubectl.apply(makeDns(addresses));
    await untilReady(kubectl, nodes);
    return { laboratory, addresses, controlPlane, nodes, kubectl, folder, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Removes images and databases from the folder of a cluster. */
function removeAllButLogs(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory() && ["containerd", "etcd", "images"].includes(entry.name)) {
      rmSync(join(entry.parentPath, entry.name), { recursive: true, force: true });
    }
  }
}

/** Starts the control plane and waits until the API server answers. */
export async function startControlPlane(controlPlane: ControlPlane, kubectl: Kubectl): Promise<void> {
  const { etcd, apiServer, controllerManager, scheduler } = controlPlane;
  etcd.start();
  apiServer.start();
  // The controller manager exits if the API server is not healthy within 10 s.
  const isReady = async (): Promise<unknown> => {
    await kubectl.run(["get", "--raw", "/readyz"]);
    return kubectl.run(["get", "namespace", "default", "kube-system"]);
  };
  await until("kube-apiserver is ready", isReady, startLimitMs, () => apiServer.tail());
  controllerManager.start();
  scheduler.start();
}

async function untilReady(kubectl: Kubectl, nodes: readonly ClusterNode[]): Promise<void> {
  // One process that waits: each start of kubectl takes a second of a slow machine.
  const areReady = (): Promise<string> =>
    kubectl.run(["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=20s"]);
  await until("all nodes are ready", areReady, startLimitMs, async () =>
    (await Promise.all(nodes.map((node) => node.tail()))).join("\n"),
  );
}

/** Node objects exist before their kubelets register, because a kubelet does not choose the CIDR of its pods. */
function makeNodeObject(node: Addresses["nodes"][number]): object {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: node.name,
      labels: {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "here",
        "topology.kubernetes.io/zone": node.zone,
      },
    },
    spec: { podCIDR: node.podCIDRs[0], podCIDRs: node.podCIDRs },
  };
}
