import { readdirSync, readFileSync } from "node:fs";
import { BackendEbpfError } from "./ebpf-error.ts";

/** A function of the kernel that programs may call. */
export interface KernelFunction {
  /** Id of its type. */
  readonly id: number;
  /** Module that has it, e.g. `nf_nat`; undefined for the kernel itself. */
  readonly module: string | undefined;
}

/** Facts of the kernel that programs are loaded into. */
export interface KernelTypes {
  /** By name; functions that the kernel lacks are missing. */
  readonly functions: ReadonlyMap<string, KernelFunction>;
  /** Offsets in bytes by `struct.member`; missing as above. */
  readonly members: ReadonlyMap<string, number>;
  /** Names of constants that the kernel has. */
  readonly constants: ReadonlySet<string>;
}

/** Names to look for. */
export interface WantedTypes {
  readonly functions: readonly string[];
  /** *Shape:* `nf_conn.proto`. */
  readonly members: readonly string[];
  readonly constants: readonly string[];
}

const folder = "/sys/kernel/btf";

/** Kinds of types that matter here. Source: include/uapi/linux/btf.h. */
const kinds = { struct: 4, union: 5, enum: 6, function: 12 };

/** Words that follow the three of each type, by kind: a fixed number, and a number for each of its members. */
const fixedWords: Readonly<Record<number, number>> = { 1: 1, 3: 3, 14: 1, 17: 1 };
const memberWords: Readonly<Record<number, number>> = { 4: 3, 5: 3, 6: 2, 13: 2, 15: 3, 19: 3 };

/**
 * Looks names up in the kernel's description of its own types (BTF), and in those of the modules that have conntrack
 * and NAT, where these are modules. Errors: BPF_UNSUPPORTED if the kernel has no such description.
 *
 * *Cost:* about 0.1 s for the 5 MB of a kernel.
 */
export function readKernelTypes(wanted: WantedTypes): KernelTypes {
  const found = { functions: new Map<string, KernelFunction>(), members: new Map<string, number>() };
  const constants = new Set<string>();
  const base = readTypes("vmlinux");
  if (base === undefined) {
    throw new BackendEbpfError("BPF_UNSUPPORTED", `${folder}/vmlinux cannot be read (CONFIG_DEBUG_INFO_BTF)`);
  }
  const kernel = parseHeader(base);
  scan(base, { ...found, constants }, wanted, { firstId: 1, strings: [kernel], module: undefined });
  const modules = readdirSync(folder).filter((name) => /^nf_(conntrack|nat)$/.test(name));
  for (const module of modules) {
    const bytes = readTypes(module);
    if (bytes === undefined) continue;
    const place = { firstId: kernel.count + 1, strings: [kernel, parseHeader(bytes)], module };
    scan(bytes, { ...found, constants }, wanted, place);
  }
  return { ...found, constants };
}

function readTypes(name: string): Buffer | undefined {
  try {
    return readFileSync(`${folder}/${name}`);
  } catch {
    return undefined;
  }
}

/** The string section of a description, and how many types it has. */
interface Strings {
  readonly bytes: Buffer;
  readonly count: number;
}

/** Where the types of a module continue those of the kernel: ids and string offsets go on after the kernel's. */
interface Place {
  readonly firstId: number;
  readonly strings: readonly Strings[];
  readonly module: string | undefined;
}

interface Found {
  readonly functions: Map<string, KernelFunction>;
  readonly members: Map<string, number>;
  readonly constants: Set<string>;
}

function words(bytes: Buffer): Uint32Array {
  // A copy if the buffer is not aligned.
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : Buffer.from(Uint8Array.from(bytes).buffer);
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.length >> 2);
}

function parseHeader(bytes: Buffer): Strings {
  const [, header = 0, , , strings = 0, length = 0] = words(bytes.subarray(0, 24));
  let count = 0;
  forEachType(bytes, () => count++);
  return { bytes: bytes.subarray(header + strings, header + strings + length), count };
}

/** Calls `visit` with the position of each type, in words. */
function forEachType(bytes: Buffer, visit: (at: number, all: Uint32Array) => void): void {
  const all = words(bytes);
  const [, header = 0, types = 0, length = 0] = all;
  const end = (header + types + length) >> 2;
  for (let at = (header + types) >> 2; at < end; ) {
    const info = all[at + 1] ?? 0;
    const kind = (info >>> 24) & 31;
    visit(at, all);
    at += 3 + (fixedWords[kind] ?? 0) + (memberWords[kind] ?? 0) * (info & 0xffff);
  }
}

function scan(bytes: Buffer, found: Found, wanted: WantedTypes, { firstId, strings, module }: Place): void {
  const offsets = (names: Iterable<string>) => offsetsOf(new Set(names), strings);
  const functions = offsets(wanted.functions);
  const constants = offsets(wanted.constants);
  const structs = offsets(wanted.members.map((member) => member.split(".")[0] ?? ""));
  const fields = offsets(wanted.members.map((member) => member.split(".")[1] ?? ""));
  let id = firstId - 1;
  forEachType(bytes, (at, all) => {
    id++;
    const [name = 0, info = 0] = all.subarray(at, at + 2);
    const kind = (info >>> 24) & 31;
    const count = info & 0xffff;
    if (kind === kinds.function) {
      const known = functions.get(name);
      if (known !== undefined) found.functions.set(known, { id, module });
    } else if (kind === kinds.enum) {
      for (let index = 0; index < count; index++) {
        const known = constants.get(all[at + 3 + index * 2] ?? 0);
        if (known !== undefined) found.constants.add(known);
      }
    } else if (kind === kinds.struct && structs.has(name)) {
      for (let index = 0; index < count; index++) {
        const field = fields.get(all[at + 3 + index * 3] ?? 0);
        const bits = (all[at + 5 + index * 3] ?? 0) & 0xff_ffff;
        if (field !== undefined) found.members.set(`${structs.get(name)}.${field}`, bits / 8);
      }
    }
  });
}

/** Returns the names by their offset in the string sections, which follow each other. */
function offsetsOf(names: ReadonlySet<string>, strings: readonly Strings[]): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  let start = 0;
  for (const { bytes } of strings) {
    for (const name of names) {
      const text = Buffer.from(`\0${name}\0`, "latin1");
      // The kernel stores each string once; a module may have it again.
      const at = bytes.indexOf(text);
      if (at >= 0) found.set(start + at + 1, name);
    }
    start += bytes.length;
  }
  return found;
}
