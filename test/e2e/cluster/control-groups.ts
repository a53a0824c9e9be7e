import { existsSync, globSync, mkdirSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Longest time for the kernel to end the processes of a closed laboratory. */
const limitMs = 10_000;

/** CPU weight of one process outside of any group: of version 1 and 2. */
const [sharesOfProcess, weightOfProcess] = [1_024, 100];

/** Processes of a node that compete for the CPU with those outside: its pods. */
const processesOfNode = 8;

/**
 * Creates the group of all pods with the weight of as many processes as it will have. Without this, all pods of all
 * nodes together get as much of a busy machine as a single other process, and answer nothing for seconds.
 */
export function makeControlGroups(nodeCount: number): void {
  const processes = nodeCount * processesOfNode;
  const weights = [
    { tree: "/sys/fs/cgroup/cpu", file: "cpu.shares", weight: sharesOfProcess * processes },
    { tree: "/sys/fs/cgroup", file: "cpu.weight", weight: weightOfProcess * processes },
  ];
  for (const { tree, file, weight } of weights) {
    if (!existsSync(join(tree, file)) && !existsSync(join(tree, "cgroup.controllers"))) continue;
    mkdirSync(join(tree, "k8s.io"), { recursive: true });
    if (existsSync(join(tree, "k8s.io", file))) writeFileSync(join(tree, "k8s.io", file), String(weight));
  }
}

/**
 * Removes the control groups of the pods of ended clusters. They are the only traces of a cluster outside of its
 * laboratory and its folder.
 *
 * containerd puts the groups of all pods below /k8s.io. Groups with processes cannot be removed, so those of a cluster
 * that another process runs stay.
 */
export async function removeControlGroups(): Promise<void> {
  for (let waitedMs = 0; waitedMs < limitMs; waitedMs += 100) {
    // Version 1 has a tree for each controller, version 2 a single one.
    const trees = globSync(["/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"]);
    if (trees.map(removeTree).every((isRemoved) => isRemoved)) return;
    // Groups disappear a moment after their last process.
    await sleep(100);
  }
}

/** Returns whether the whole tree was removed. */
function removeTree(folder: string): boolean {
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (entry.isDirectory()) removeTree(join(folder, entry.name));
    }
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}
