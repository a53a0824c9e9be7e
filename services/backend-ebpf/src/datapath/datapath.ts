import { existsSync, mkdirSync, readFileSync, rmSync, statfsSync } from "node:fs";
import { release } from "node:os";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { BpfMap, mapTypes } from "../bpf/bpf-map.ts";
import {
  attachPinned,
  type Hook,
  isAttached,
  type LoadedProgram,
  loadProgram,
  parseObjectFile,
} from "../bpf/program.ts";
import { BackendEbpfError, readNetnsCookie } from "../bpf/system-call.ts";
import { addressBytes, familyOf, type MapSizes, sizes } from "../layout/layout.ts";
import { objectFile } from "../program/object.ts";
import { EbpfMaps, GracePeriods } from "./maps.ts";

/** File system types (BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC). */
const fileSystems = { bpf: 0xcafe4a11, cgroup2: 0x63677270 };

/** Checks that this process can make and pin maps. Errors: BPF_UNSUPPORTED with everything that is missing. */
function checkFeatures(bpfFolder: string): void {
  const missing: string[] = [];
  if (fileSystemOf(bpfFolder) !== fileSystems.bpf) {
    missing.push(`a BPF file system at ${bpfFolder} (mount -t bpf bpf ${bpfFolder})`);
  }
  try {
    const layout = { name: "probe", type: mapTypes.array, keyBytes: 4, valueBytes: 4, maxEntries: 1, flags: 0 };
    BpfMap.create(layout).close();
  } catch (error) {
    missing.push(`the right to use BPF (capabilities BPF and NET_ADMIN; ${reasonOf(error)})`);
  }
  if (missing.length === 0) return;
  throw new BackendEbpfError("BPF_UNSUPPORTED", `Linux ${release()} on this node lacks: ${missing.join("; ")}`);
}

/**
 * Returns the folder of the cgroup whose processes are served: `option`, or the root, which contains all processes of
 * this node. If controllers of cgroup version 1 are mounted, version 2 is usually mounted at `unified`, and that folder
 * is used.
 *
 * Errors: BPF_UNSUPPORTED, also if the root is unknown because this process runs in a container. A container's cgroup
 * file system begins at its own cgroup, and programs attached there would serve no other process.
 */
export function findCgroup(
  option: string | undefined,
  mounts = readFileSync("/proc/self/mounts", "utf8"),
  isVersion2 = (folder: string): boolean => fileSystemOf(folder) === fileSystems.cgroup2,
): string {
  const folder = option ?? /^\S+ (\S+) cgroup2 /m.exec(mounts)?.[1];
  const cgroup = folder === undefined ? undefined : [folder, join(folder, "unified")].find(isVersion2);
  if (cgroup === undefined) {
    const what =
      folder === undefined ? "cgroup version 2 is not mounted" : `${folder} is not a folder of cgroup version 2`;
    throw new BackendEbpfError("BPF_UNSUPPORTED", `${what}: ${howToMount}`);
  }
  // Every cgroup except the root has this file.
  if (option === undefined && existsSync(join(cgroup, "cgroup.type"))) {
    throw new BackendEbpfError(
      "BPF_UNSUPPORTED",
      `${cgroup} is the cgroup of this container, not that of the node: mount the node's /sys/fs/cgroup into the container, and name that folder with --cgroup; or name this one, if the container is the node`,
    );
  }
  return cgroup;
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

/**
 * The socket hooks at which `Datapath` attaches programs to a cgroup. `connect` chooses the endpoint of a TCP socket,
 * and `getpeername` returns the address to which the process connected. All other traffic is translated by the nftables
 * rules.
 */
export const socketHooks: readonly Hook[] = [
  { name: "connect4", attachType: 10 },
  { name: "connect6", attachType: 11 },
  { name: "getpeername4", attachType: 29 },
  { name: "getpeername6", attachType: 30 },
];

/** Bits of `flags` in map `config`. Source: lb.bpf.c. */
const configFlags = { loopbackNodePorts: 1, socketsOfPods: 2 };

/** Options of {@link Datapath}. */
export interface DatapathOptions {
  /** Folder of this instance in a BPF file system. *Shape:* `/sys/fs/bpf/kpng-ebpf`. */
  readonly folder: string;
  /** Folder of the cgroup whose processes are served. Default: the root of cgroup version 2. */
  readonly cgroup: string | undefined;
  /** Whether sockets of pods (in network namespaces other than the node's) are served, too. */
  readonly isForPods: boolean;
  readonly mapSizes: MapSizes;
  readonly log: Log;
}

/**
 * Everything in the kernel that the sockets of both families share: the maps, the programs and their attachments.
 *
 * Maps and links are pinned, so sockets are served while no process runs. A new process takes over the maps, and
 * replaces each program in one step as soon as the frontends of a family are complete.
 */
export class Datapath {
  readonly maps: EbpfMaps;
  readonly grace: GracePeriods;
  readonly #options: DatapathOptions;
  readonly #cgroup: string;
  readonly #programs: readonly LoadedProgram[];
  readonly #netnsCookie: bigint;
  readonly #links: string;

  private constructor(options: DatapathOptions) {
    const { folder, mapSizes } = options;
    const programs = parseObjectFile(gunzipSync(Buffer.from(objectFile, "base64")));
    checkFeatures(dirname(folder));
    this.#options = options;
    this.#cgroup = findCgroup(options.cgroup);
    this.#links = join(folder, "links");
    this.maps = EbpfMaps.open(folder, mapSizes);
    this.grace = new GracePeriods();
    this.#programs = socketHooks.map((hook) =>
      loadProgram(programs.get(`socket/${hook.name}`), hook, this.maps.descriptors),
    );
    this.#netnsCookie = readNetnsCookie();
  }

  /**
   * Loads the programs; nothing is attached yet. If they cannot be loaded, programs and maps of an earlier run go on,
   * and a first run leaves nothing. Errors: BPF_UNSUPPORTED, PROGRAM_REJECTED, BPF_FAILED.
   */
  static open(options: DatapathOptions): Datapath {
    const isFirst = !existsSync(options.folder);
    try {
      return new Datapath(options);
    } catch (error) {
      if (isFirst) removeDatapath(options);
      throw error;
    }
  }

  /**
   * Writes what programs must know about the node for one family: settings, and the addresses at which node ports
   * answer. Returns a line for each difference. Errors: BPF_FAILED.
   */
  useNode(node: NodePlan, localAddresses: readonly string[]): readonly string[] {
    const { family, isLoopbackNodePorts, nodePortAddresses } = node;
    const changes: string[] = [];
    const config = Buffer.alloc(sizes.config);
    config.writeBigUInt64LE(this.#netnsCookie);
    const loopback = isLoopbackNodePorts ? configFlags.loopbackNodePorts : 0;
    config.writeUInt32LE(loopback | (this.#options.isForPods ? configFlags.socketsOfPods : 0), 8);
    const index = family === "v4" ? 0 : 1;
    const configs = this.maps.get("config");
    if (!configs.get(index).equals(config)) {
      configs.set(index, config);
      changes.push("settings of the node differ");
    }
    const chosen = nodePortAddresses === "all" ? localAddresses : nodePortAddresses;
    // For loopback addresses, there is a flag.
    const addresses = chosen.filter((address) => !isLoopback(address));
    const desired = new Map(addresses.map((address) => [addressBytes(address).toString("latin1"), address]));
    const nodeAddresses = this.maps.get("node_addresses");
    for (const [key] of nodeAddresses.entries()) {
      if (familyOf(key) !== family || desired.delete(key.toString("latin1"))) continue;
      nodeAddresses.delete(key);
      changes.push("an address is not the node's");
    }
    for (const [key, address] of desired) {
      nodeAddresses.set(key, 1);
      changes.push(`address ${address} was missing`);
    }
    return changes;
  }

  /**
   * Attaches all programs that are not attached. Must be called when the frontends of a family are complete; sockets of
   * the other family find none in new maps, and are left to the rules. Returns a line for each difference. Errors:
   * BPF_FAILED.
   */
  attach(): readonly string[] {
    // Another program may have removed the folder in the meantime.
    this.maps.pin();
    mkdirSync(this.#links, { recursive: true, mode: 0o700 });
    const changes = this.#programs.flatMap((program) => {
      const { name } = program.hook;
      const change = attachPinned(program, this.#cgroup, join(this.#links, name));
      return change === undefined ? [] : [`program ${name} ${change}`];
    });
    this.maps.removeOthers();
    return changes;
  }
}

/**
 * Returns a line for each hook of an instance to which no program is attached. *Shape:*
 * `no program is attached at connect4`. Errors: BPF_FAILED.
 */
export function missingPrograms({ folder }: Pick<DatapathOptions, "folder">): readonly string[] {
  const links = join(folder, "links");
  return socketHooks
    .filter((hook) => !isAttached(join(links, hook.name)))
    .map((hook) => `no program is attached at ${hook.name}`);
}

/** Detaches all programs of an instance, and removes its maps, by removing their files. */
export function removeDatapath({ folder, log }: Pick<DatapathOptions, "folder" | "log">): void {
  rmSync(folder, { recursive: true, force: true });
  log.info("programs detached, maps removed", { folder });
}
