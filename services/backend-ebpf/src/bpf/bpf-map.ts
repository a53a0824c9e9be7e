import {
  type AttributeField,
  bpf,
  checkResult,
  closeDescriptor,
  makeAttribute,
  mapMemory,
  requireBpf,
  setField,
} from "./system-call.ts";

/** Map types. Source: `enum bpf_map_type`. */
export const mapTypes = {
  hash: 1,
  array: 2,
  arrayOfMaps: 12,
  socketStorage: 24,
} as const;

/** Key of an element: its bytes, or a string with one character for each byte, or a number for a key of 4 bytes. */
type MapKey = Buffer | string | number;

/** Map flags. Source: linux/bpf.h. */
export const mapFlags = { noPreallocation: 1, mappable: 1024 } as const;

/** Layout of a map. The programs were compiled for its sizes of key and value. */
export interface MapLayout {
  /** The symbol by which the object file refers to the map; at most 15 characters. */
  readonly name: string;
  readonly type: (typeof mapTypes)[keyof typeof mapTypes];
  /** Sizes in bytes. */
  readonly keyBytes: number;
  readonly valueBytes: number;
  readonly maxEntries: number;
  /** Combination of {@link mapFlags}. */
  readonly flags: number;
}

const commands = {
  create: 0,
  lookup: 1,
  update: 2,
  delete: 3,
  pin: 6,
  get: 7,
  loadBtf: 18,
  lookupBatch: 24,
  updateBatch: 26,
};
const errnoNoEntry = 2;
/** Number of elements read by one system call: more than a hash bucket has, which one call must be able to return. */
const batchSize = 4_096;

/** A BPF map: a table in the kernel that BPF programs read and this process writes. */
export class BpfMap {
  readonly layout: MapLayout;
  readonly descriptor: number;
  /**
   * Values of a map with the flag `mappable`, each rounded up to 8 bytes; empty for other maps. Writes are immediately
   * visible to programs.
   */
  readonly memory: Buffer;

  constructor(layout: MapLayout, descriptor: number) {
    const { valueBytes, maxEntries, flags } = layout;
    this.layout = layout;
    this.descriptor = descriptor;
    const isMapped = (flags & mapFlags.mappable) !== 0;
    this.memory = isMapped ? mapMemory(descriptor, maxEntries * Math.ceil(valueBytes / 8) * 8) : Buffer.alloc(0);
  }

  /** Makes a map. For an array of maps, `inner` is a map with the same layout as its elements. Errors: BPF_FAILED. */
  static create(layout: MapLayout, inner = 0): BpfMap {
    const { name, type, keyBytes, valueBytes, maxEntries, flags } = layout;
    const shape = [type, keyBytes, valueBytes, maxEntries, flags, inner];
    const isStorage = type === mapTypes.socketStorage;
    const btf = isStorage ? loadIntegerTypes(valueBytes / 4) : 0;
    // The type description, and the numbers of the types of key and value in it.
    const types = isStorage ? [btf, 1, 2] : [];
    const attribute = makeAttribute(72, ...fieldsFrom(0, shape), ...fieldsFrom(48, types));
    attribute.write(name.slice(0, 15), 28, "latin1");
    try {
      return new BpfMap(layout, requireBpf(`map ${name} cannot be created`, commands.create, attribute));
    } finally {
      if (isStorage) closeDescriptor(btf);
    }
  }

  /** Opens the map with this layout that is pinned at a path; undefined if there is none. Errors: BPF_FAILED. */
  static open(layout: MapLayout, path: string): BpfMap | undefined {
    const descriptor = openPinned(path);
    return descriptor === undefined ? undefined : new BpfMap(layout, descriptor);
  }

  /** Pins the map, so that it outlives this process and exists until the file is removed. Errors: BPF_FAILED. */
  pin(path: string): void {
    pinObject(this.descriptor, path);
  }

  /** Writes an element. A number is written as a value of 4 bytes. Errors: BPF_FAILED. */
  set(key: MapKey, value: Buffer | number): void {
    const attribute = makeAttribute(32, [0, this.descriptor], [8, bytesOf(key)], [16, bytesOf(value)]);
    requireBpf(this.#writing(), commands.update, attribute);
  }

  /**
   * Writes elements of a hash in one call, with one value of 4 bytes for each key. Errors: as {@link set}; some
   * elements may have been written.
   */
  setAll(keys: readonly string[], values: readonly number[]): void {
    if (keys.length === 0) return;
    const bytes = [bytesOf(keys.join("")), Buffer.from(Uint32Array.from(values).buffer)] as const;
    const attribute = makeAttribute(56, [16, bytes[0]], [24, bytes[1]], [32, keys.length], [36, this.descriptor]);
    requireBpf(this.#writing(), commands.updateBatch, attribute);
  }

  /** Returns an element of an array. Errors: BPF_FAILED. */
  get(index: number): Buffer {
    const value = Buffer.alloc(this.layout.valueBytes);
    const attribute = makeAttribute(32, [0, this.descriptor], [8, bytesOf(index)], [16, value]);
    requireBpf(`map ${this.layout.name}`, commands.lookup, attribute);
    return value;
  }

  /** Deletes an element, if it is there. Errors: BPF_FAILED. */
  delete(key: MapKey): void {
    const result = bpf(commands.delete, makeAttribute(32, [0, this.descriptor], [8, bytesOf(key)]));
    if (result !== -errnoNoEntry) checkResult(`map ${this.layout.name}`, result);
  }

  /** Returns all elements of a hash. Elements that change in the meantime may be missing. Errors: BPF_FAILED. */
  entries(): readonly (readonly [key: Buffer, value: Buffer])[] {
    const { keyBytes, valueBytes, name } = this.layout;
    const elements: (readonly [Buffer, Buffer])[] = [];
    const position = Buffer.alloc(Math.max(keyBytes, 8));
    for (let isFirst = true; ; isFirst = false) {
      const [keys, values] = [Buffer.alloc(batchSize * keyBytes), Buffer.alloc(batchSize * valueBytes)];
      const attribute = makeAttribute(
        56,
        [8, position],
        [16, keys],
        [24, values],
        [32, batchSize],
        [36, this.descriptor],
      );
      if (!isFirst) setField(attribute, 0, position);
      const result = bpf(commands.lookupBatch, attribute);
      const isEnd = result === -errnoNoEntry;
      if (!isEnd) checkResult(`map ${name} cannot be read`, result);
      const count = attribute.readUInt32LE(32);
      for (let at = 0; at < count; at++) {
        const [key, value] = [at * keyBytes, at * valueBytes];
        elements.push([keys.subarray(key, key + keyBytes), values.subarray(value, value + valueBytes)]);
      }
      if (isEnd) return elements;
    }
  }

  close(): void {
    closeDescriptor(this.descriptor);
  }

  #writing(): string {
    const { name, maxEntries } = this.layout;
    return `map ${name} (at most ${maxEntries} elements) cannot be written`;
  }
}

/** Returns fields of 4 bytes each, the first of them at offset `start`. */
function fieldsFrom(start: number, values: readonly number[]): readonly AttributeField[] {
  return values.map((value, index) => [start + index * 4, value]);
}

function bytesOf(content: MapKey): Buffer {
  if (typeof content === "string") return Buffer.from(content, "latin1");
  return typeof content === "number" ? Buffer.from(Uint32Array.of(content).buffer) : content;
}

/** Opens the object that is pinned at a path; undefined if there is none. Errors: BPF_FAILED. */
export function openPinned(path: string): number | undefined {
  const result = bpf(commands.get, makeAttribute(24, [0, Buffer.from(`${path}\0`)]));
  return result === -errnoNoEntry ? undefined : checkResult(`${path} cannot be opened`, result);
}

/** Pins an object at a path in a BPF file system. Errors: BPF_FAILED. */
export function pinObject(descriptor: number, path: string): void {
  const name = Buffer.from(`${path}\0`);
  requireBpf(`${path} cannot be pinned`, commands.pin, makeAttribute(24, [0, name], [8, descriptor]));
}

/**
 * Loads the type description that the kernel requires for a socket storage map: type 1 is an integer, type 2 an array
 * of `count` integers. Source: Documentation/bpf/btf.rst.
 */
function loadIntegerTypes(count: number): number {
  const words = (...values: readonly number[]): Buffer => Buffer.from(new Uint32Array(values).buffer);
  const types = words(1, 0x0100_0000, 4, 32, 0, 0x0300_0000, 0, 1, 1, count);
  const header = words(0x0001_eb9f, 24, 0, types.length, types.length, 3);
  const bytes = Buffer.concat([header, types, Buffer.from("\0u\0")]);
  const attribute = makeAttribute(32, [0, bytes], [16, bytes.length]);
  return requireBpf("types of a map cannot be loaded", commands.loadBtf, attribute);
}
