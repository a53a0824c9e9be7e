import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import type { Family } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { NodePlan, PodTraffic } from "@kpng/service-plan/service-plan.ts";
import { attachPinned, isAttached } from "../bpf/link.ts";
import { parseObjectFile } from "../bpf/object-file.ts";
import { type LoadedProgram, loadProgram } from "../bpf/program.ts";
import { interfaceIndex, readNetnsCookie } from "../bpf/system-call.ts";
import type { MapSizes } from "../layout/map-layouts.ts";
import { objectFile } from "../program/object.ts";
import { checkFeatures, findCgroup, tcpStateOffset } from "./features.ts";
import { type Hook, packetHook, socketHooks } from "./hooks.ts";
import { listInterfaces, podInterfaces } from "./interfaces.ts";
import { EbpfMaps, GracePeriods } from "./maps.ts";
import { encodeConfig, type NodeConfig, nodePortAddresses, writeNodeState } from "./node-state.ts";
import { PacketFrame } from "./packet-frame.ts";
import { StaleSockets } from "./stale-sockets.ts";

/** How often the list of interfaces is read, in milliseconds. */
const interfacesEveryMs = 1_000;

/** Options of {@link Datapath}. */
export interface DatapathOptions {
  /** Name of the instance: of its folder in the BPF file system, and of its table of nftables. */
  readonly name: string;
  /** Where a BPF file system is mounted. */
  readonly bpfFolder: string;
  /** Folder of the cgroup whose processes are served. Default: the root of cgroup version 2. */
  readonly cgroup: string | undefined;
  /** Interfaces whose packets are served; names may end in `*`. Empty: all but the loopback device. */
  readonly interfaces: readonly string[];
  readonly refuseBit: number;
  readonly mapSizes: MapSizes;
  readonly log: Log;
}

/**
 * Everything in the kernel that both families share: maps, programs and where they are attached, and the table of
 * nftables. `backend.ts` opens one; rule sets of both families use it.
 *
 * Maps and links are pinned, so packets and sockets are served while no process runs. A new process takes over the maps
 * and replaces each program in one step, when what it serves is complete.
 */
export class Datapath {
  readonly maps: EbpfMaps;
  readonly grace: GracePeriods;
  readonly staleSockets: StaleSockets;
  readonly #options: DatapathOptions;
  readonly #cgroup: string;
  readonly #frame: PacketFrame;
  readonly #sockets: readonly LoadedProgram[];
  readonly #packets: LoadedProgram;
  readonly #config: NodeConfig;
  readonly #links: string;
  /** Families whose rules must be complete before programs of an earlier run are replaced. */
  readonly #awaited: Set<Family>;
  #podTraffic: PodTraffic | undefined;
  /** Interfaces with our program, in the form of `describeInterfaces`. */
  #interfaces = "";
  #timer: NodeJS.Timeout | undefined;

  private constructor(options: DatapathOptions, families: readonly Family[], frame: PacketFrame) {
    const { name, bpfFolder, mapSizes, refuseBit } = options;
    const programs = parseObjectFile(gunzipSync(Buffer.from(objectFile, "base64")));
    const types = checkFeatures(programs.values(), bpfFolder);
    const folder = join(bpfFolder, name);
    this.#options = options;
    this.#frame = frame;
    this.#cgroup = findCgroup(options.cgroup);
    this.#links = join(folder, "links");
    mkdirSync(this.#links, { recursive: true, mode: 0o700 });
    // Programs of an earlier run serve until everything is complete; without them, each family counts.
    this.#awaited = new Set(readdirSync(this.#links).length === 0 ? [] : families);
    this.maps = EbpfMaps.open(folder, mapSizes);
    this.grace = new GracePeriods();
    this.staleSockets = new StaleSockets({ log: options.log, settle: () => this.grace.pass() });
    const targets = { maps: this.maps.descriptors, functions: types.functions };
    const load = (hook: Hook): LoadedProgram => loadProgram(programs.get(hook.section), hook, targets);
    this.#sockets = socketHooks.map(load);
    this.#packets = load(packetHook);
    this.#config = { netnsCookie: readNetnsCookie(), refuseBit, tcpStateOffset: tcpStateOffset(types) };
  }

  /**
   * Loads the programs; nothing is attached yet. A node that cannot load them is left as it was. Errors:
   * BPF_UNSUPPORTED, PROGRAM_REJECTED, CGROUP_UNKNOWN, BPF_FAILED, FRAME_FAILED.
   */
  static async open(options: DatapathOptions, families: readonly Family[]): Promise<Datapath> {
    const frame = new PacketFrame(options.name, options.refuseBit);
    const folder = join(options.bpfFolder, options.name);
    const isFirst = !existsSync(folder);
    // First, because it loads the kernel's modules for NAT, whose functions programs call.
    if (!(await frame.isInstalled())) await frame.install();
    try {
      return new Datapath(options, families, frame);
    } catch (error) {
      if (isFirst) {
        rmSync(folder, { recursive: true, force: true });
        // Its failure would hide why programs cannot be loaded.
        await frame.remove().catch(() => undefined);
      }
      throw error;
    }
  }

  /** Writes what programs need to know of the node, in one family. Returns a line for each difference. */
  useNode(node: NodePlan, localAddresses: readonly string[]): readonly string[] {
    this.#podTraffic = node.podTraffic;
    const addresses = nodePortAddresses(node, localAddresses);
    return writeNodeState(this.maps, node.family, encodeConfig(node, this.#config), addresses);
  }

  /**
   * Attaches all programs where they are not attached, and restores the table of nftables. Called when the frontends of
   * a family are complete. Calls `committing` before it repairs what packets need. Returns a line for each difference.
   * Errors: BPF_FAILED, FRAME_FAILED.
   */
  async attach(family: Family, committing: () => void): Promise<readonly string[]> {
    const changes: string[] = [];
    if (!(await this.#frame.isInstalled())) {
      committing();
      await this.#frame.install();
      changes.push(`table ${this.#options.name} of nftables differed`);
    }
    this.#awaited.delete(family);
    if (this.#awaited.size > 0) return changes;
    if (this.findMissingProgram() !== undefined) committing();
    // Another program may have removed the folder.
    this.maps.pin();
    mkdirSync(this.#links, { recursive: true, mode: 0o700 });
    // Sockets last: a Service that answers there is served to packets, too.
    changes.push(...this.#attachInterfaces());
    for (const program of this.#sockets) {
      const path = join(this.#links, program.kind.name);
      const change = attachPinned(program, { kind: "cgroup", folder: this.#cgroup }, path);
      if (change !== "none") changes.push(`program ${program.kind.name} ${change}`);
    }
    this.maps.removeOthers();
    this.#timer ??= setInterval(() => this.#watchInterfaces(), interfacesEveryMs).unref();
    return changes;
  }

  /** True if programs of an earlier run are attached, or ours. */
  get isAttached(): boolean {
    return existsSync(this.#links) && readdirSync(this.#links).length > 0;
  }

  /** Returns the first line of {@link missingPrograms}; undefined if there is none. */
  findMissingProgram(): string | undefined {
    return missingPrograms(this.#options)[0];
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.staleSockets.close();
  }

  #watchInterfaces(): void {
    try {
      if (describeInterfaces(this.#listInterfaces()) === this.#interfaces) return;
      const changes = this.#attachInterfaces();
      this.#options.log.info("interfaces changed", { changes: changes.length, example: changes[0] ?? "" });
    } catch (error) {
      this.#options.log.error("programs not attached to new interfaces: trying again with the next check", {
        reason: reasonOf(error),
      });
    }
  }

  /** Indexes by name; 0 for one that has gone since the list was read. */
  #listInterfaces(): ReadonlyMap<string, number> {
    return new Map(listInterfaces(this.#options.interfaces).map((name) => [name, interfaceIndex(name)]));
  }

  #attachInterfaces(): readonly string[] {
    const indexes = this.#listInterfaces();
    const ofPods = podInterfaces([...indexes.keys()], this.#podTraffic).map((name) => indexes.get(name) ?? 0);
    const map = this.maps.get("pod_interfaces");
    for (const [key] of map.entries()) if (!ofPods.includes(key.readUInt32LE(0))) map.delete(key);
    for (const index of ofPods) map.set(index, 1);
    const changes: string[] = [];
    const wanted = new Set<string>();
    for (const [name, index] of indexes) {
      if (index === 0) continue;
      const file = `interface-${index}`;
      wanted.add(file);
      try {
        const change = attachPinned(this.#packets, { kind: "interface", index }, join(this.#links, file));
        if (change !== "none") changes.push(`program packets ${change} at ${name}`);
      } catch (error) {
        // An interface that goes away at this moment must not keep others from being served.
        if (interfaceIndex(name) === index) throw error;
      }
    }
    for (const file of readdirSync(this.#links)) {
      if (!file.startsWith("interface-") || wanted.has(file)) continue;
      rmSync(join(this.#links, file), { force: true });
      changes.push(`program packets detached from an interface that has gone or is not served (${file})`);
    }
    this.#interfaces = describeInterfaces(indexes);
    return changes;
  }
}

/** A recreated interface has another index. */
function describeInterfaces(indexes: ReadonlyMap<string, number>): string {
  return [...indexes].join(" ");
}

/**
 * Returns a line for each hook and interface of an instance that no program is attached to, sockets first. *Shape:* `no
 * program is attached at connect4`. `Datapath` asks before it repairs, and `PrintedRuleSet` for `--diff`. Errors:
 * BPF_FAILED.
 */
export function missingPrograms({ name, bpfFolder, interfaces }: Omit<DatapathOptions, "log">): readonly string[] {
  const links = join(bpfFolder, name, "links");
  const indexes = listInterfaces(interfaces).map((each) => [each, interfaceIndex(each)] as const);
  const places = [
    ...socketHooks.map((hook) => [hook.name, hook.name] as const),
    // Without those that have gone since the list was read.
    ...indexes.flatMap(([each, index]) => (index === 0 ? [] : [[each, `interface-${index}`] as const])),
  ];
  return places
    .filter(([, file]) => !isAttached(join(links, file)))
    .map(([place]) => `no program is attached at ${place}`);
}

/** Detaches all programs of an instance, and removes its maps and its table. Errors: the first failure. */
export async function removeDatapath(options: DatapathOptions): Promise<void> {
  const { name, bpfFolder, refuseBit, log } = options;
  const failures = new CleanupFailures(log);
  await failures.attempt(async () => rmSync(join(bpfFolder, name), { recursive: true, force: true }));
  await failures.attempt(() => new PacketFrame(name, refuseBit).remove());
  failures.end();
  log.info("programs detached, maps and table removed", { name });
}
