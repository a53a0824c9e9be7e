import {
  BackendEbpfError,
  type BpfResult,
  bpf,
  closeDescriptor,
  describeErrno,
  makeAttribute,
  mapMemory,
  readInfo,
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
const errnoNoSpace = 28;
/** Number of elements read by one system call; more if a hash bucket has more. */
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
  // The arguments of all calls are allocated once, so that their addresses never change.
  readonly #key: Buffer;
  readonly #value: Buffer;
  readonly #attribute: Buffer;
  /** The argument for deletions. It contains no value, because the kernel would reject one. */
  readonly #deletion: Buffer;

  constructor(layout: MapLayout, descriptor: number) {
    const { keyBytes, valueBytes, maxEntries, flags } = layout;
    this.layout = layout;
    this.descriptor = descriptor;
    this.#key = Buffer.alloc(keyBytes);
    this.#value = Buffer.alloc(valueBytes);
    this.#attribute = makeAttribute(32, [0, descriptor], [8, this.#key], [16, this.#value]);
    this.#deletion = makeAttribute(32, [0, descriptor], [8, this.#key]);
    const isMapped = (flags & mapFlags.mappable) !== 0;
    this.memory = isMapped ? mapMemory(descriptor, maxEntries * Math.ceil(valueBytes / 8) * 8) : Buffer.alloc(0);
  }

  /**
   * Makes a map. If it is an array of maps, `inner` is a map with the same layout as its elements. Errors: BPF_FAILED.
   */
  static create(layout: MapLayout, inner = 0): BpfMap {
    const { name, type, valueBytes } = layout;
    const btf = type === mapTypes.socketStorage ? loadIntegerTypes(valueBytes / 4) : undefined;
    // The type description, and the numbers of the types of key and value in it.
    const types =
      btf === undefined
        ? []
        : ([
            [48, btf],
            [52, 1],
            [56, 2],
          ] as const);
    const attribute = makeAttribute(72, ...shapeOf(layout, 0), [20, inner], ...types);
    attribute.write(name.slice(0, 15), 28, "latin1");
    try {
      return new BpfMap(layout, requireBpf(`map ${name} cannot be created`, commands.create, attribute));
    } finally {
      if (btf !== undefined) closeDescriptor(btf);
    }
  }

  /** Opens the map that is pinned at a path; undefined if there is none, or if it has a different layout. */
  static open(layout: MapLayout, path: string): BpfMap | undefined {
    const descriptor = openPinned(path);
    if (descriptor === undefined) return undefined;
    const info = readInfo(`map ${layout.name}`, descriptor, Buffer.alloc(88));
    const shape = [[0, layout.type] as const, ...shapeOf(layout, 4).slice(1)];
    if (shape.every(([at, value]) => info.readUInt32LE(at) === value)) return new BpfMap(layout, descriptor);
    closeDescriptor(descriptor);
    return undefined;
  }

  /** Pins the map, so that it outlives this process and exists until the file is removed. Errors: BPF_FAILED. */
  pin(path: string): void {
    pinObject(this.descriptor, path);
  }

  /** Writes an element. A number is written as a value of 4 bytes. Errors: BPF_FAILED. */
  set(key: MapKey, value: Buffer | number): void {
    this.#putKey(key);
    if (typeof value === "number") this.#value.writeUInt32LE(value);
    else value.copy(this.#value);
    this.#expectWritten(bpf(commands.update, this.#attribute));
  }

  /**
   * Writes elements of a hash in one call, with one value of 4 bytes for each key. Errors: as {@link set}; some
   * elements may have been written.
   */
  setAll(keys: readonly string[], values: readonly number[]): void {
    if (keys.length === 0) return;
    const bytes = [Buffer.from(keys.join(""), "latin1"), Buffer.from(Uint32Array.from(values).buffer)] as const;
    const attribute = makeAttribute(56, [16, bytes[0]], [24, bytes[1]], [32, keys.length], [36, this.descriptor]);
    this.#expectWritten(bpf(commands.updateBatch, attribute));
  }

  /** Returns an element; undefined if there is none. Errors: BPF_FAILED. */
  get(key: MapKey): Buffer | undefined {
    this.#putKey(key);
    return this.#expectPresent(commands.lookup, this.#attribute) ? Buffer.from(this.#value) : undefined;
  }

  /** Deletes an element. Returns false if there was none. Errors: BPF_FAILED. */
  delete(key: MapKey): boolean {
    this.#putKey(key);
    return this.#expectPresent(commands.delete, this.#deletion);
  }

  /**
   * Returns all elements of a hash. Elements that change in the meantime may be missing. Errors: BPF_FAILED.
   */
  entries(): readonly (readonly [key: Buffer, value: Buffer])[] {
    const { keyBytes, valueBytes, maxEntries, name } = this.layout;
    const elements: (readonly [Buffer, Buffer])[] = [];
    const position = Buffer.alloc(Math.max(keyBytes, 8));
    let size = batchSize;
    let isFirst = true;
    for (;;) {
      const keys = Buffer.alloc(size * keyBytes);
      const values = Buffer.alloc(size * valueBytes);
      const attribute = makeAttribute(56, [8, position], [16, keys], [24, values], [32, size], [36, this.descriptor]);
      if (!isFirst) setField(attribute, 0, position);
      const result = bpf(commands.lookupBatch, attribute);
      if (result.kind === "failed" && result.errno === errnoNoSpace && size < maxEntries * 2) {
        // The next bucket has more elements than fit; the position has not changed, so try again with more room.
        size *= 2;
        continue;
      }
      const isEnd = result.kind === "failed" && result.errno === errnoNoEntry;
      if (result.kind === "failed" && !isEnd) {
        throw new BackendEbpfError("BPF_FAILED", `map ${name} cannot be read: ${describeErrno(result.errno)}`);
      }
      isFirst = false;
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

  #expectWritten(result: BpfResult): void {
    if (result.kind === "done") return;
    const { name, maxEntries } = this.layout;
    throw new BackendEbpfError(
      "BPF_FAILED",
      `map ${name} (at most ${maxEntries} elements) cannot be written: ${describeErrno(result.errno)}`,
    );
  }

  #putKey(key: MapKey): void {
    if (typeof key === "string") this.#key.write(key, "latin1");
    else if (typeof key === "number") this.#key.writeUInt32LE(key);
    else key.copy(this.#key);
  }

  #expectPresent(command: number, attribute: Buffer): boolean {
    const result = bpf(command, attribute);
    if (result.kind === "done") return true;
    if (result.errno === errnoNoEntry) return false;
    throw new BackendEbpfError("BPF_FAILED", `map ${this.layout.name}: ${describeErrno(result.errno)}`);
  }
}

/**
 * Returns the fields of a layout, each with its offset in the argument for making a map. In the kernel's description of
 * a map, all fields except the first come `later` bytes further on.
 */
function shapeOf({ type, keyBytes, valueBytes, maxEntries, flags }: MapLayout, later: number) {
  const fields = [type, keyBytes, valueBytes, maxEntries, flags];
  return fields.map((value, index) => [index * 4 + later, value] as const);
}

/** Opens the object that is pinned at a path; undefined if there is none. Errors: BPF_FAILED. */
export function openPinned(path: string): number | undefined {
  const name = Buffer.from(`${path}\0`);
  const result = bpf(commands.get, makeAttribute(24, [0, name]));
  if (result.kind === "done") return result.value;
  if (result.errno === errnoNoEntry) return undefined;
  throw new BackendEbpfError("BPF_FAILED", `${path} cannot be opened: ${describeErrno(result.errno)}`);
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
