import { existsSync, readFileSync, statfsSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import { BpfMap, mapTypes } from "../bpf/bpf-map.ts";
import { BackendEbpfError } from "../bpf/ebpf-error.ts";
import { type KernelTypes, readKernelTypes } from "../bpf/kernel-types.ts";
import type { ProgramCode } from "../bpf/object-file.ts";

/** Types of file systems (BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC). */
const fileSystems = { bpf: 0xcafe4a11, cgroup2: 0x63677270 };

/** Constants that the kernel has if it has a feature, and the first release that has it. */
const constants: Readonly<Record<string, string>> = {
  BPF_TCX_INGRESS: "programs on interfaces through tcx links (Linux 6.6)",
  BPF_FIB_LOOKUP_SRC: "source addresses from the routing table (Linux 6.7)",
};

/** Members whose offset a program needs: the state of a TCP connection in conntrack. */
const members = ["nf_conn.proto", "ip_ct_tcp.state"] as const;

/**
 * Finds out whether this node can run the programs, and returns what they need to know of the kernel. `Datapath` calls
 * it before it loads one: the kernel's own errors would name one missing feature at a time, and not by name. Errors:
 * BPF_UNSUPPORTED with everything that is missing.
 */
export function checkFeatures(programs: Iterable<ProgramCode>, bpfFolder: string): KernelTypes {
  const functions = new Set(
    [...programs].flatMap(({ references }) =>
      references.filter(({ kind }) => kind === "function").map(({ symbol }) => symbol),
    ),
  );
  const wanted = { functions: [...functions], members, constants: Object.keys(constants) };
  const types = readKernelTypes(wanted);
  const missing = [
    ...(fileSystemOf(bpfFolder) === fileSystems.bpf
      ? []
      : [`a BPF file system at ${bpfFolder} (mount -t bpf bpf ${bpfFolder})`]),
    ...whyNoMaps(),
    ...wanted.functions
      .filter((name) => !types.functions.has(name))
      .map((name) => `function ${name} for programs (Linux 6.1 with conntrack and NAT)`),
    ...wanted.constants.filter((name) => !types.constants.has(name)).map((name) => constants[name] ?? name),
    ...members.filter((name) => !types.members.has(name)).map((name) => `${name} in the types of the kernel`),
  ];
  if (missing.length === 0) return types;
  throw new BackendEbpfError("BPF_UNSUPPORTED", `Linux ${release()} on this node lacks: ${missing.join("; ")}`);
}

/** Offset of the state of a TCP connection in a conntrack entry, in bytes. */
export function tcpStateOffset({ members: offsets }: KernelTypes): number {
  return members.reduce((sum, name) => sum + (offsets.get(name) ?? 0), 0);
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
    return [`the right to use BPF (capabilities BPF, NET_ADMIN and PERFMON; ${message})`];
  }
}
