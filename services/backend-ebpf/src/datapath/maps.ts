import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { BpfMap, mapTypes } from "../bpf/bpf-map.ts";
import { BackendEbpfError, bpfOffThread, makeAttribute } from "../bpf/system-call.ts";
import { layoutVersion, type MapName, type MapSizes, mapLayouts } from "../layout/layout.ts";
import type { MapContents } from "../tables/frontends.ts";

const updateCommand = 2;

/**
 * The maps that the BPF programs of an instance read, pinned in a folder whose name depends on their layout. So a
 * release with another layout, or other sizes, makes new maps and does not change those of running programs.
 */
export class EbpfMaps {
  /** Folder of the instance. */
  readonly folder: string;
  readonly #maps: ReadonlyMap<MapName, BpfMap>;
  readonly #version: string;

  private constructor(folder: string, version: string, maps: ReadonlyMap<MapName, BpfMap>) {
    this.folder = folder;
    this.#version = version;
    this.#maps = maps;
  }

  /**
   * Opens the pinned maps. If one of them is missing, all are recreated, because values in one map are positions in
   * another. Errors: BPF_FAILED.
   */
  static open(folder: string, mapSizes: MapSizes): EbpfMaps {
    const existing = EbpfMaps.openExisting(folder, mapSizes);
    if (existing !== undefined) return existing;
    const { layouts, version } = describeMaps(mapSizes);
    rmSync(join(folder, version), { recursive: true, force: true });
    const maps = new EbpfMaps(folder, version, new Map(layouts.map((layout) => [layout.name, BpfMap.create(layout)])));
    maps.pin();
    return maps;
  }

  /** Opens the maps of an earlier run with these sizes; undefined if it left none. Errors: BPF_FAILED. */
  static openExisting(folder: string, mapSizes: MapSizes): EbpfMaps | undefined {
    const { layouts, version } = describeMaps(mapSizes);
    const maps = new Map<MapName, BpfMap>();
    for (const layout of layouts) {
      const map = BpfMap.open(layout, join(folder, version, layout.name));
      if (map === undefined) return undefined;
      maps.set(layout.name, map);
    }
    return new EbpfMaps(folder, version, maps);
  }

  get(name: MapName): BpfMap {
    const map = this.#maps.get(name);
    if (map === undefined) throw new Error(`map ${name} was not opened`);
    return map;
  }

  /** Descriptors of the maps, keyed by their symbols in the object file, for loading the programs. */
  get descriptors(): ReadonlyMap<string, number> {
    return new Map([...this.#maps].map(([name, { descriptor }]) => [name, descriptor]));
  }

  contents(): MapContents {
    return {
      frontends: this.get("frontends").entries(),
      slots: this.get("slots").memory,
      endpoints: this.get("endpoints").memory,
    };
  }

  /** Pins the maps that are not pinned. Errors: BPF_FAILED. */
  pin(): void {
    mkdirSync(join(this.folder, this.#version), { recursive: true, mode: 0o700 });
    for (const [name, map] of this.#maps) {
      const path = join(this.folder, this.#version, name);
      if (!existsSync(path)) map.pin(path);
    }
  }

  /** Removes the maps of other layouts. Must be called after all programs of an earlier run have been replaced. */
  removeOthers(): void {
    for (const name of readdirSync(this.folder)) {
      if (name !== "links" && name !== this.#version) {
        rmSync(join(this.folder, name), { recursive: true, force: true });
      }
    }
  }
}

function describeMaps(mapSizes: MapSizes) {
  const layouts = mapLayouts(mapSizes);
  const hash = createHash("sha256")
    .update(JSON.stringify([layoutVersion, layouts]))
    .digest("hex");
  return { layouts, version: `maps-${hash.slice(0, 8)}` };
}

/**
 * Waits for RCU grace periods. After a grace period, no program still uses elements that were replaced before the grace
 * period began.
 */
export class GracePeriods {
  readonly #wait: () => Promise<boolean>;
  /** Functions to call after the next grace period. If the kernel could not wait, they stay for the one after it. */
  #releases: (() => void)[] = [];
  /** The next grace period, if one has been requested but has not begun. */
  #next: Promise<void> | undefined;
  /** Resolves when the last grace period that was requested has ended, or could not be waited for. */
  #last: Promise<void> = Promise.resolve();

  /** `wait` waits for a grace period, and resolves to false if the kernel could not. Default: with a map of its own. */
  constructor(wait = makeWait()) {
    this.#wait = wait;
  }

  /** Calls `release` after a grace period; it must not throw. After a failure, it waits for the next grace period. */
  after(release: () => void): void {
    this.#releases.push(release);
    this.pass().catch(() => undefined);
  }

  /**
   * Resolves after a grace period, when the functions of all earlier calls have been called. Errors: BPF_FAILED if the
   * kernel could not wait; then none of them has been called.
   *
   * One grace period serves all calls that came before it began, because waiting some 20 ms for each call would add up
   * if changes are frequent.
   */
  pass(): Promise<void> {
    if (this.#next !== undefined) return this.#next;
    const next = this.#last.then(async () => {
      const due = this.#releases;
      this.#releases = [];
      this.#next = undefined;
      if (await this.#wait()) {
        for (const each of due) each();
        return;
      }
      this.#releases.push(...due);
      throw new BackendEbpfError("BPF_FAILED", "the kernel could not wait for a grace period");
    });
    this.#next = next;
    this.#last = next.catch(() => undefined);
    return next;
  }
}

/** Returns a function that updates a map of maps, because the kernel returns from this only after a grace period. */
function makeWait(): () => Promise<boolean> {
  const shape = { keyBytes: 4, valueBytes: 4, maxEntries: 1, flags: 0 };
  const inner = BpfMap.create({ ...shape, name: "grace_inner", type: mapTypes.array });
  const outer = BpfMap.create({ ...shape, name: "grace", type: mapTypes.arrayOfMaps }, inner.descriptor);
  const [key, value] = [makeAttribute(4), makeAttribute(4, [0, inner.descriptor])];
  const update = makeAttribute(32, [0, outer.descriptor], [8, key], [16, value]);
  return () => bpfOffThread(updateCommand, update);
}
