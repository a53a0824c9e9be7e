import { readFileSync, statfsSync } from "node:fs";
import { release } from "node:os";
import { BpfMap, mapTypes } from "../bpf/bpf-map.ts";
import { BackendEbpfError } from "../bpf/ebpf-error.ts";
import { type KernelTypes, readKernelTypes } from "../bpf/kernel-types.ts";
import type { ProgramCode } from "../bpf/object-file.ts";

/** Type of a BPF file system (BPF_FS_MAGIC). */
const bpfFileSystem = 0xcafe4a11;

/** Constants that the kernel has if it has a feature, and the first release that has it. */
const constants: Readonly<Record<string, string>> = {
  BPF_TCX_INGRESS: "programs on interfaces through tcx links (Linux 6.6)",
  BPF_FIB_LOOKUP_SRC: "source addresses from the routing table (Linux 6.7)",
};

/** Members whose offset a program needs: the state of a TCP connection in conntrack. */
const members = ["nf_conn.proto", "ip_ct_tcp.state"] as const;

/**
 * Finds out whether this node can run the programs, and returns what they need to know of the kernel. Errors:
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
    ...(isBpfFileSystem(bpfFolder) ? [] : [`a BPF file system at ${bpfFolder} (mount -t bpf bpf ${bpfFolder})`]),
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
 * Returns the folder of the cgroup that contains all processes of this node: where cgroup version 2 is mounted. Errors:
 * CGROUP_UNKNOWN.
 */
export function findRootCgroup(mounts = readFileSync("/proc/self/mounts", "utf8")): string {
  const found = /^\S+ (\S+) cgroup2 /m.exec(mounts)?.[1];
  if (found !== undefined) return found;
  throw new BackendEbpfError("CGROUP_UNKNOWN", "cgroup version 2 is not mounted: mount it, or give --cgroup a folder");
}

function isBpfFileSystem(folder: string): boolean {
  try {
    return statfsSync(folder).type === bpfFileSystem;
  } catch {
    return false;
  }
}

function whyNoMaps(): readonly string[] {
  const layout = { name: "probe", type: mapTypes.array, keyBytes: 4, valueBytes: 4, maxEntries: 1, flags: 0 } as const;
  try {
    BpfMap.create(layout).close();
    return [];
  } catch (error) {
    const { message } = error as BackendEbpfError;
    return [`the right to use BPF (capabilities BPF, NET_ADMIN, PERFMON; ${message})`];
  }
}
