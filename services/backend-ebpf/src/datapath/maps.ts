import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { BpfMap, mapTypes } from "../bpf/bpf-map.ts";
import { addressOf, bpfOffThread, makeAttribute } from "../bpf/system-call.ts";
import { layoutVersion, type MapName, type MapSizes, mapLayouts } from "../layout/map-layouts.ts";
import type { MapContents } from "../tables/installed-frontends.ts";

const updateCommand = 2;

/**
 * The maps of an instance, which are pinned in a folder that is named after their layout. So programs of a release with
 * another layout, or with other sizes, get new maps beside those that the running programs use.
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

  /** Opens the pinned maps, and makes those that are missing. Errors: BPF_FAILED. */
  static open(folder: string, mapSizes: MapSizes): EbpfMaps {
    const { layouts, version } = describeMaps(mapSizes);
    const path = join(folder, version);
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const maps = new Map<MapName, BpfMap>();
    for (const layout of layouts) {
      const pin = join(path, layout.name);
      let map = BpfMap.open(layout, pin);
      if (map === undefined) {
        map = BpfMap.create(layout);
        rmSync(pin, { force: true });
        map.pin(pin);
      }
      maps.set(layout.name, map);
    }
    return new EbpfMaps(folder, version, maps);
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

  /** Descriptors by the symbols of the object file. */
  get descriptors(): ReadonlyMap<string, number> {
    return new Map([...this.#maps].map(([name, { descriptor }]) => [name, descriptor]));
  }

  contents(): MapContents {
    return {
      frontends: this.get("frontends").entries(),
      ranges: this.get("ranges").entries(),
      slots: this.get("slots").memory,
      endpoints: this.get("endpoints").memory,
    };
  }

  /** Removes the maps of other layouts, which no program uses any more. */
  removeOthers(): void {
    for (const name of readdirSync(this.folder)) {
      if (name.startsWith("maps-") && name !== this.#version) {
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
 * Waits until no program can still use what was replaced before: an RCU grace period. The kernel waits for one before
 * an update of a map of maps returns.
 */
export class GracePeriods {
  readonly #outer: BpfMap;
  readonly #inner: BpfMap;
  #pending: Promise<void> = Promise.resolve();

  constructor() {
    const shape = { keyBytes: 4, valueBytes: 4, maxEntries: 1, flags: 0 };
    this.#inner = BpfMap.create({ ...shape, name: "grace_inner", type: mapTypes.array });
    this.#outer = BpfMap.create({ ...shape, name: "grace", type: mapTypes.arrayOfMaps }, this.#inner.descriptor);
  }

  /** Calls `release` after a grace period. */
  after(release: () => void): void {
    const key = Buffer.alloc(4);
    const value = Buffer.alloc(4);
    value.writeUInt32LE(this.#inner.descriptor);
    const attribute = makeAttribute(
      32,
      ...([
        [0, this.#outer.descriptor],
        [8, addressOf(key)],
        [16, addressOf(value)],
      ] as const),
    );
    this.#pending = this.#pending.then(async () => {
      await bpfOffThread(updateCommand, attribute);
      // The kernel reads the buffers until then.
      if (key.length + value.length > 0) release();
    });
  }

  /** Resolves when everything that was to be released is. */
  idle(): Promise<void> {
    return this.#pending;
  }
}
