import { readdirSync, readFileSync } from "node:fs";
import { BackendEbpfError } from "./ebpf-error.ts";

/** A function of the kernel that programs may call. */
export interface KernelFunction {
  /** Id of its type. */
  readonly id: number;
  /** Module that has it, e.g. `nf_nat`; undefined for the kernel itself. */
  readonly module: string | undefined;
}

/** Facts of the kernel that programs are loaded into. Names that the kernel lacks are missing. */
export interface KernelTypes {
  readonly functions: ReadonlyMap<string, KernelFunction>;
  /** Offsets in bytes by `struct.member`. */
  readonly members: ReadonlyMap<string, number>;
  readonly constants: ReadonlySet<string>;
}

/** Names to look for. */
export interface WantedTypes {
  readonly functions: readonly string[];
  /** *Shape:* `nf_conn.proto`. */
  readonly members: readonly string[];
  readonly constants: readonly string[];
}

/** A description as it was read: all words of the file, and its strings. */
interface Description {
  readonly all: Uint32Array;
  readonly strings: Buffer;
}

const folder = "/sys/kernel/btf";

/** Kinds of types that matter here. Source: include/uapi/linux/btf.h. */
const kinds = { struct: 4, enum: 6, function: 12 };

/** Words that follow the three of each type, by kind: a fixed number, and a number for each of its members. */
const fixedWords: Readonly<Record<number, number>> = { 1: 1, 3: 3, 14: 1, 17: 1 };
const memberWords: Readonly<Record<number, number>> = { 4: 3, 5: 3, 6: 2, 13: 2, 15: 3, 19: 3 };

/**
 * Looks names up in the kernel's description of its own types (BTF), and in those of the modules that have conntrack
 * and NAT, where these are modules. `checkFeatures` calls it once at the start, to list what is missing and to link the
 * programs. Separate from it, because it is a parser that knows no feature. Errors: BPF_UNSUPPORTED if the kernel has
 * no such description.
 *
 * *Cost:* about 0.1 s for the 5 MB of a kernel.
 */
export function readKernelTypes(wanted: WantedTypes): KernelTypes {
  const found = { functions: new Map(), members: new Map(), constants: new Set<string>() };
  const kernel = readDescription("vmlinux");
  if (kernel === undefined) {
    throw new BackendEbpfError("BPF_UNSUPPORTED", `${folder}/vmlinux cannot be read (CONFIG_DEBUG_INFO_BTF)`);
  }
  // Type 0 is "void". Ids and string offsets of a module go on after the kernel's.
  const lastId = scan(kernel, [kernel.strings], { id: 0, module: undefined }, wanted, found);
  for (const module of readdirSync(folder).filter((name) => /^nf_(conntrack|nat)$/.test(name))) {
    const types = readDescription(module);
    if (types !== undefined) scan(types, [kernel.strings, types.strings], { id: lastId, module }, wanted, found);
  }
  return found;
}

function readDescription(name: string): Description | undefined {
  try {
    const bytes = readFileSync(`${folder}/${name}`);
    const all = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
    const [, header = 0, , , start = 0, length = 0] = all;
    return { all, strings: bytes.subarray(header + start, header + start + length) };
  } catch {
    return undefined;
  }
}

/** Adds what one description has of the wanted names. Returns the id of its last type; `last` is the one before it. */
function scan(
  { all }: Description,
  strings: readonly Buffer[],
  last: KernelFunction,
  wanted: WantedTypes,
  found: { functions: Map<string, KernelFunction>; members: Map<string, number>; constants: Set<string> },
): number {
  const functions = offsetsOf(wanted.functions, strings);
  const constants = offsetsOf(wanted.constants, strings);
  const structs = offsetsOf(wanted.members.map(beforeDot), strings);
  const fields = offsetsOf(wanted.members.map(afterDot), strings);
  const [, header = 0, types = 0, length = 0] = all;
  let { id } = last;
  let at = (header + types) >> 2;
  while (at < (header + types + length) >> 2) {
    id++;
    const [name = 0, info = 0] = all.subarray(at, at + 2);
    const [kind, count] = [(info >>> 24) & 31, info & 0xffff];
    const perMember = memberWords[kind] ?? 0;
    const [known, struct] = [functions.get(name), structs.get(name)];
    if (kind === kinds.function && known !== undefined) found.functions.set(known, { id, module: last.module });
    const hasMembers = kind === kinds.enum || (kind === kinds.struct && struct !== undefined);
    const end = at + 3 + (fixedWords[kind] ?? 0) + perMember * count;
    for (let member = at + 3; hasMembers && member < end; member += perMember) {
      const offset = all[member] ?? 0;
      const [constant, field] = [constants.get(offset), fields.get(offset)];
      if (kind === kinds.enum && constant !== undefined) found.constants.add(constant);
      const bits = (all[member + 2] ?? 0) & 0xff_ffff;
      if (kind === kinds.struct && field !== undefined) found.members.set(`${struct}.${field}`, bits / 8);
    }
    at = end;
  }
  return id;
}

const beforeDot = (text: string): string => text.split(".")[0] ?? "";
const afterDot = (text: string): string => text.split(".")[1] ?? "";

/** Returns names by their offset in the string sections, which follow each other. */
function offsetsOf(names: readonly string[], strings: readonly Buffer[]): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  let start = 0;
  for (const bytes of strings) {
    for (const name of names) {
      // The kernel stores each string once; a module may have it again.
      const at = bytes.indexOf(Buffer.from(`\0${name}\0`, "latin1"));
      if (at >= 0) found.set(start + at + 1, name);
    }
    start += bytes.length;
  }
  return found;
}
