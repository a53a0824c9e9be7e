import { existsSync, readFileSync, statfsSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import { BpfMap, mapTypes } from "../bpf/bpf-map.ts";
import { BackendEbpfError } from "../bpf/ebpf-error.ts";

/** Types of file systems (BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC). */
const fileSystems = { bpf: 0xcafe4a11, cgroup2: 0x63677270 };

/**
 * Finds out whether this process can make maps and keep them. `Datapath` calls it before it loads a program. Errors:
 * BPF_UNSUPPORTED with everything that is missing.
 */
export function checkFeatures(bpfFolder: string): void {
  const hasFileSystem = fileSystemOf(bpfFolder) === fileSystems.bpf;
  const mount = `a BPF file system at ${bpfFolder} (mount -t bpf bpf ${bpfFolder})`;
  const missing = [...(hasFileSystem ? [] : [mount]), ...whyNoMaps()];
  if (missing.length === 0) return;
  throw new BackendEbpfError("BPF_UNSUPPORTED", `Linux ${release()} on this node lacks: ${missing.join("; ")}`);
}

/**
 * Returns the folder of the cgroup whose processes are served: `wanted`, or the root, which contains all processes of
 * this node. Beside controllers of version 1, version 2 is usually mounted at `unified`, which is used then.
 *
 * Errors: CGROUP_UNKNOWN, also if the root is not known because this process runs in a container: its file system of
 * cgroups begins at its own cgroup, and programs attached there would serve no other process.
 */
export function findCgroup(
  wanted: string | undefined,
  mounts = readFileSync("/proc/self/mounts", "utf8"),
  isVersion2 = (folder: string): boolean => fileSystemOf(folder) === fileSystems.cgroup2,
): string {
  const folder = wanted ?? /^\S+ (\S+) cgroup2 /m.exec(mounts)?.[1];
  if (folder === undefined) {
    throw new BackendEbpfError("CGROUP_UNKNOWN", `cgroup version 2 is not mounted: ${howToMount}`);
  }
  const found = [folder, join(folder, "unified")].find(isVersion2);
  if (found === undefined) {
    throw new BackendEbpfError("CGROUP_UNKNOWN", `${folder} is not a folder of cgroup version 2: ${howToMount}`);
  }
  // Every cgroup but the root has this file.
  if (wanted === undefined && existsSync(join(found, "cgroup.type"))) {
    throw new BackendEbpfError(
      "CGROUP_UNKNOWN",
      `${found} is the cgroup of this container, not that of the node: mount the node's /sys/fs/cgroup into the container, and name that folder with --cgroup; or name this one, if the container is the node`,
    );
  }
  return found;
}

const howToMount =
  "start the node with version 2 (kernel parameter systemd.unified_cgroup_hierarchy=1), or mount it (mount -t cgroup2 cgroup2 FOLDER) and name the folder with --cgroup";

function fileSystemOf(folder: string): number | undefined {
  try {
    return statfsSync(folder).type;
  } catch {
    return undefined;
  }
}

function whyNoMaps(): readonly string[] {
  const layout = { name: "probe", type: mapTypes.array, keyBytes: 4, valueBytes: 4, maxEntries: 1, flags: 0 } as const;
  try {
    BpfMap.create(layout).close();
    return [];
  } catch (error) {
    const { message } = error as BackendEbpfError;
    return [`the right to use BPF (capabilities BPF and NET_ADMIN; ${message})`];
  }
}
