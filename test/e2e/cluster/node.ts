import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { runCommand } from "@kpng/laboratory/laboratory.ts";
import { Child, isAlive, startIn } from "../../cluster/child.ts";
import { until } from "../../cluster/until.ts";
import { makeControlGroups } from "./control-groups.ts";
import { copyImageStore } from "./image-store.ts";
import type { Addresses, NodeAddresses } from "./network.ts";
import { addNode } from "./network.ts";
import { makeNodeFiles } from "./node-files.ts";

/** Options of a node, and what it shares with the others of its cluster. */
export interface NodeOptions {
  readonly laboratory: Laboratory;
  readonly addresses: Addresses;
  readonly node: NodeAddresses;
  /** Folder for the node's files; must be on the file system of the image store. */
  readonly folder: string;
  /** Store that containerd starts with, from `image-store.ts`. */
  readonly imageStore: string;
  readonly kubeletPath: string;
  readonly kubeconfig: string;
}

/** Node of a cluster, on this machine (`LocalNode`) or in a guest (`guest-nodes.ts`). */
export interface ClusterNode {
  readonly name: string;
  /** Folder with the node's files, as the node sees it; `static-pods` in it has the manifests of its static pods. */
  readonly folder: string;
  /** Starts the node in a new network namespace, without rules. The API server notices it later. */
  start(): Promise<void>;
  /** Ends all processes of the node at once, as a power failure does. Its files stay. */
  kill(): Promise<void>;
  /**
   * Runs a command as a process of the node, also of its cgroup, and returns what it prints. Errors: an exit status
   * other than 0.
   */
  run(command: readonly string[]): Promise<string>;
  /** Returns the last lines of its logs, for the message of a failure. */
  tail(): Promise<string>;
}

/** Script that runs its arguments in the node's cgroup of version 2, if `node.sh` has made one. */
const inCgroup =
  '[ ! -e /sys/fs/cgroup/unified/cgroup.procs ] || echo 0 >/sys/fs/cgroup/unified/cgroup.procs; exec "$@"';

/**
 * Node on this machine: containerd and kubelet in namespaces of their own, with the machine's file system except for
 * the folders that they write to. `node.sh` is its process 1.
 */
class LocalNode implements ClusterNode {
  readonly name: string;
  readonly folder: string;
  readonly #options: NodeOptions;
  readonly #child: Child;

  private constructor(options: NodeOptions, child: Child) {
    this.name = options.node.name;
    this.folder = options.folder;
    this.#options = options;
    this.#child = child;
  }

  /** Writes the files of a node. It does not run yet. */
  static async make(options: NodeOptions): Promise<LocalNode> {
    const { laboratory, addresses, node, folder, imageStore } = options;
    mkdirSync(folder);
    const store = join(folder, "containerd");
    await copyImageStore(imageStore, store);
    for (const [name, text] of Object.entries(makeNodeFiles({ addresses, node, folder, store }))) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
    const script = [
      join(import.meta.dirname, "node.sh"),
      ...[folder, node.addresses.join(","), options.kubeletPath, options.kubeconfig, node.name],
    ];
    const isolated = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"];
    const command = [...isolated, ...script];
    const start = startIn(laboratory, node.name);
    return new LocalNode(options, new Child(node.name, command, join(folder, "node.log"), start));
  }

  async start(): Promise<void> {
    const { laboratory, addresses, node } = this.#options;
    await addNode(laboratory, addresses, node);
    rmSync(this.#pidFile, { force: true });
    this.#child.start();
    await until(
      `${this.name} has started`,
      () => this.#child.isRunning && existsSync(this.#pidFile),
      30_000,
      () => this.#child.tail(),
    );
  }

  async kill(): Promise<void> {
    const pid = this.#processId();
    // With process 1 of a namespace, the kernel ends all others.
    process.kill(pid, "SIGKILL");
    await until(`${this.name} has ended`, () => !isAlive(pid) && !this.#child.isRunning, 30_000);
  }

  async run(command: readonly string[]): Promise<string> {
    const inNamespaces = ["nsenter", "--target", String(this.#processId()), "--all", "--"];
    const { exitCode, stdout, stderr } = await runCommand([...inNamespaces, "sh", "-c", inCgroup, "sh", ...command]);
    if (exitCode !== 0) throw new Error(`${command.join(" ")} on ${this.name}: exit status ${exitCode}: ${stderr}`);
    return stdout;
  }

  async tail(): Promise<string> {
    const logs = ["kubelet.log", "containerd.log"].map((name) => join(this.#options.folder, "log", name));
    const lines = logs.filter((path) => existsSync(path)).map((path) => readFileSync(path, "utf8").slice(-2_000));
    return [this.#child.tail(), ...lines].join("\n");
  }

  /** Process 1 of the node, as the machine sees it. */
  #processId(): number {
    return Number(readFileSync(this.#pidFile, "utf8"));
  }

  get #pidFile(): string {
    return join(this.#options.folder, "pid");
  }
}

/** Makes nodes on this machine, each with a folder in `folder`. They do not run yet. */
export async function makeNodes(
  options: Omit<NodeOptions, "node" | "folder">,
  folder: string,
): Promise<readonly ClusterNode[]> {
  const { nodes } = options.addresses;
  makeControlGroups(nodes.length);
  return Promise.all(nodes.map((node) => LocalNode.make({ ...options, node, folder: join(folder, node.name) })));
}
