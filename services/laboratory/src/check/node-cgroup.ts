import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Laboratory } from "../laboratory.ts";
import { descendants } from "../node-process.ts";
import type { TwoNodes } from "./two-nodes.ts";

/** Returns the folder at which cgroup version 2 is mounted; undefined if it is not. */
export function cgroupMount(): string | undefined {
  return /^\S+ (\S+) cgroup2 /m.exec(readFileSync("/proc/self/mounts", "utf8"))?.[1];
}

/**
 * Mounts a BPF file system in a laboratory, which disappears with it, also at /sys/fs/bpf, where programs look for it.
 * Returns its other folder.
 */
export async function mountBpf(laboratory: Laboratory, name: string): Promise<string> {
  const folder = join(laboratory.folder, "bpf");
  const script =
    'mkdir -p "$0" && { mountpoint -q "$0" || { mount -t bpf bpf "$0" && mount --bind "$0" /sys/fs/bpf; }; }';
  await laboratory.run(name, ["sh", "-c", script, folder]);
  return folder;
}

/**
 * A cgroup with the processes of node n1: its pods and its own. Programs are attached to it, never to the root cgroup of
 * the machine.
 */
export class NodeCgroup implements Disposable {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Makes a cgroup, and moves the agents of n1 and its pods into it. Errors: cgroup version 2 is not mounted. */
  static open(world: TwoNodes): NodeCgroup {
    const mount = cgroupMount();
    if (mount === undefined) throw new Error("cgroup version 2 is not mounted");
    const folder = join(mount, `kpng-test-${process.pid}-${performance.now().toFixed()}`);
    mkdirSync(folder);
    const agents = [
      world.agentOf({ kind: "node", name: "n1" }),
      ...(["a", "b"] as const).map((name) => world.agentOf({ kind: "pod", name })),
    ];
    for (const { processId } of agents) for (const id of descendants(processId ?? 0)) NodeCgroup.#move(folder, id);
    return new NodeCgroup(folder);
  }

  static #move(folder: string, id: number): void {
    writeFileSync(join(folder, "cgroup.procs"), String(id));
  }

  /** Removes the cgroup; its processes move to the root. */
  [Symbol.dispose](): void {
    if (!existsSync(this.folder)) return;
    const root = join(this.folder, "..");
    for (const id of readFileSync(join(this.folder, "cgroup.procs"), "utf8").split("\n").filter(Boolean)) {
      NodeCgroup.#move(root, Number(id));
    }
    rmdirSync(this.folder);
  }
}
