import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import type { Family } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { attachPinned, isAttached } from "../bpf/link.ts";
import { parseObjectFile } from "../bpf/object-file.ts";
import { type LoadedProgram, loadProgram } from "../bpf/program.ts";
import { readNetnsCookie } from "../bpf/system-call.ts";
import type { MapSizes } from "../layout/map-layouts.ts";
import { objectFile } from "../program/object.ts";
import { checkFeatures, findCgroup } from "./features.ts";
import { socketHooks } from "./hooks.ts";
import { EbpfMaps, GracePeriods } from "./maps.ts";
import { encodeConfig, nodePortAddresses, writeNodeState } from "./node-state.ts";

/** Options of {@link Datapath}. */
export interface DatapathOptions {
  /** Name of the instance: of its folder in the BPF file system, and of its tables of nftables. */
  readonly name: string;
  /** Where a BPF file system is mounted. */
  readonly bpfFolder: string;
  /** Folder of the cgroup whose processes are served. Default: the root of cgroup version 2. */
  readonly cgroup: string | undefined;
  /** Whether sockets of pods are served, too: those in other network namespaces than the node's. */
  readonly isForPods: boolean;
  readonly mapSizes: MapSizes;
  readonly log: Log;
}

/**
 * Everything in the kernel that the sockets of both families share: maps, programs and where they are attached.
 * `backend.ts` opens one; rule sets of both families use it.
 *
 * Maps and links are pinned, so sockets are served while no process runs. A new process takes over the maps, and
 * replaces each program in one step when what it serves is complete.
 */
export class Datapath {
  readonly maps: EbpfMaps;
  readonly grace: GracePeriods;
  readonly #options: DatapathOptions;
  readonly #cgroup: string;
  readonly #programs: readonly LoadedProgram[];
  readonly #netnsCookie: bigint;
  readonly #links: string;
  /** Families whose frontends must be complete before programs of an earlier run are replaced. */
  readonly #awaited: Set<Family>;

  private constructor(options: DatapathOptions, families: readonly Family[]) {
    const { name, bpfFolder, mapSizes } = options;
    const programs = parseObjectFile(gunzipSync(Buffer.from(objectFile, "base64")));
    checkFeatures(bpfFolder);
    const folder = join(bpfFolder, name);
    this.#options = options;
    this.#cgroup = findCgroup(options.cgroup);
    this.#links = join(folder, "links");
    mkdirSync(this.#links, { recursive: true, mode: 0o700 });
    // Programs of an earlier run serve until everything is complete; without them, each family counts.
    this.#awaited = new Set(readdirSync(this.#links).length === 0 ? [] : families);
    this.maps = EbpfMaps.open(folder, mapSizes);
    this.grace = new GracePeriods();
    this.#programs = socketHooks.map((hook) => loadProgram(programs.get(hook.section), hook, this.maps.descriptors));
    this.#netnsCookie = readNetnsCookie();
  }

  /**
   * Loads the programs; nothing is attached yet. A node that cannot load them is left as it was. Errors:
   * BPF_UNSUPPORTED, PROGRAM_REJECTED, CGROUP_UNKNOWN, BPF_FAILED.
   */
  static open(options: DatapathOptions, families: readonly Family[]): Datapath {
    const isFirst = !existsSync(join(options.bpfFolder, options.name));
    try {
      return new Datapath(options, families);
    } catch (error) {
      if (isFirst) removeDatapath(options);
      throw error;
    }
  }

  /** Writes what programs need to know of the node, in one family. Returns a line for each difference. */
  useNode(node: NodePlan, localAddresses: readonly string[]): readonly string[] {
    const config = encodeConfig(node, this.#netnsCookie, this.#options.isForPods);
    return writeNodeState(this.maps, node.family, config, nodePortAddresses(node, localAddresses));
  }

  /**
   * Attaches all programs where they are not attached. Called when the frontends of a family are complete. Calls
   * `committing` before it repairs anything. Returns a line for each difference. Errors: BPF_FAILED.
   */
  attach(family: Family, committing: () => void): readonly string[] {
    this.#awaited.delete(family);
    if (this.#awaited.size > 0) return [];
    if (this.findMissingProgram() !== undefined) committing();
    // Another program may have removed the folder.
    this.maps.pin();
    mkdirSync(this.#links, { recursive: true, mode: 0o700 });
    const changes = this.#programs.flatMap((program) => {
      const { name } = program.kind;
      const change = attachPinned(program, this.#cgroup, join(this.#links, name));
      return change === "none" ? [] : [`program ${name} ${change}`];
    });
    changes.push(...this.#detachOthers());
    this.maps.removeOthers();
    return changes;
  }

  /** True if programs of an earlier run are attached, or ours. */
  get isAttached(): boolean {
    return existsSync(this.#links) && readdirSync(this.#links).length > 0;
  }

  /** Detaches programs of an earlier release at hooks that this one does not use. Returns a line for each. */
  #detachOthers(): readonly string[] {
    const others = readdirSync(this.#links).filter((link) => socketHooks.every(({ name }) => name !== link));
    return others.map((link) => {
      rmSync(join(this.#links, link));
      return `program ${link} detached`;
    });
  }

  /** Returns the first line of {@link missingPrograms}; undefined if there is none. */
  findMissingProgram(): string | undefined {
    return missingPrograms(this.#options)[0];
  }
}

/**
 * Returns a line for each hook of an instance that no program is attached to. *Shape:* `no program is attached at
 * connect4`. `Datapath` asks before it repairs, and `PrintedSockets` for `--diff`. Errors: BPF_FAILED.
 */
export function missingPrograms({ name, bpfFolder }: Pick<DatapathOptions, "name" | "bpfFolder">): readonly string[] {
  const links = join(bpfFolder, name, "links");
  return socketHooks
    .filter((hook) => !isAttached(join(links, hook.name)))
    .map((hook) => `no program is attached at ${hook.name}`);
}

/** Detaches all programs of an instance, and removes its maps. */
export function removeDatapath({ name, bpfFolder, log }: Pick<DatapathOptions, "name" | "bpfFolder" | "log">): void {
  rmSync(join(bpfFolder, name), { recursive: true, force: true });
  log.info("programs detached, maps removed", { name });
}
