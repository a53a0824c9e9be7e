import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { openPinned, pinObject } from "./bpf-map.ts";
import {
  BackendEbpfError,
  bpf,
  checkResult,
  closeDescriptor,
  describeErrno,
  makeAttribute,
  readInfo,
  requireBpf,
  setField,
} from "./system-call.ts";

/** A place in a program where `loadProgram` inserts the descriptor of a map. */
interface Reference {
  /** Index of the instruction. */
  readonly instruction: number;
  /** Name of the map. */
  readonly symbol: string;
}

/** The code of one section of an object file. */
interface ProgramCode {
  /** Instructions of 8 bytes each. */
  readonly code: Buffer;
  readonly references: readonly Reference[];
}

const sectionTypes = { symbols: 2, relocations: 9 };

/**
 * Reads the programs in an object file that clang made for BPF: 64 bits, little-endian, one function in each section.
 * Returns the programs, keyed by the name of their section. Sections without references are left out, because each of
 * our programs has some; all references are addresses of maps (R_BPF_64_64). Source of the offsets: elf(5). Pure.
 */
export function parseObjectFile(bytes: Buffer): ReadonlyMap<string, ProgramCode> {
  const sections = readSections(bytes);
  const symbols = sections.find(({ type }) => type === sectionTypes.symbols);
  const nameAt = (link: number, offset: number): string => textAt(bytes, (sections[link]?.start ?? 0) + offset);
  const symbolName = (index: number): string =>
    symbols === undefined ? "" : nameAt(symbols.link, bytes.readUInt32LE(symbols.start + index * 24));
  const programs = new Map<string, ProgramCode>();
  for (const relocations of sections) {
    const target = sections[relocations.info];
    if (relocations.type !== sectionTypes.relocations || target === undefined) continue;
    const references: Reference[] = [];
    for (let at = relocations.start; at < relocations.start + relocations.size; at += 16) {
      references.push({
        instruction: Number(bytes.readBigUInt64LE(at)) / 8,
        symbol: symbolName(bytes.readUInt32LE(at + 12)),
      });
    }
    programs.set(target.name, { code: bytes.subarray(target.start, target.start + target.size), references });
  }
  return programs;
}

function readSections(bytes: Buffer) {
  const start = Number(bytes.readBigUInt64LE(40));
  const count = bytes.readUInt16LE(60);
  const names = Number(bytes.readBigUInt64LE(start + bytes.readUInt16LE(62) * 64 + 24));
  return Array.from({ length: count }, (_, index) => {
    const at = start + index * 64;
    return {
      name: textAt(bytes, names + bytes.readUInt32LE(at)),
      type: bytes.readUInt32LE(at + 4),
      start: Number(bytes.readBigUInt64LE(at + 24)),
      size: Number(bytes.readBigUInt64LE(at + 32)),
      link: bytes.readUInt32LE(at + 40),
      info: bytes.readUInt32LE(at + 44),
    };
  });
}

function textAt(bytes: Buffer, start: number): string {
  return bytes.toString("latin1", start, bytes.indexOf(0, start));
}

/** A place in the kernel where a program runs. */
export interface Hook {
  /** At most 15 characters; shown by tools such as bpftool. */
  readonly name: string;
  /** Source: `enum bpf_attach_type`. */
  readonly attachType: number;
}

/** A program in the kernel. */
export interface LoadedProgram {
  readonly descriptor: number;
  readonly id: number;
  readonly hook: Hook;
}

const loadCommand = 5;
/** BPF_PROG_TYPE_CGROUP_SOCK_ADDR. */
const programType = 18;
/** Marks an instruction whose immediate value is a map descriptor. */
const pseudoMap = 1;
/** Some helpers may be used only by programs with a GPL-compatible licence. */
const licence = Buffer.from("Dual BSD/GPL\0");
const logBytes = 1024 * 1024;
const errnoAgain = 11;
const errnoNotPermitted = 1;
/**
 * Maximum number of attempts to load a program while signals interrupt the verifier (libbpf: 5). With 20, all starts
 * succeeded in a test with a signal every 100 ms.
 */
const maxLoads = 20;

/**
 * Loads a program for a hook, after replacing its references with descriptors. `maps` contains the descriptors, keyed by
 * symbol. Errors: PROGRAM_REJECTED with the verifier's message.
 */
export function loadProgram(
  program: ProgramCode | undefined,
  hook: Hook,
  maps: ReadonlyMap<string, number>,
): LoadedProgram {
  const { name, attachType } = hook;
  if (program === undefined) throw new Error(`the object file has no program ${name}`);
  const code = Buffer.from(program.code);
  for (const { instruction, symbol } of program.references) {
    const at = instruction * 8;
    code.writeUInt8((code.readUInt8(at + 1) & 15) | (pseudoMap << 4), at + 1);
    code.writeInt32LE(maps.get(symbol) ?? -1, at + 4);
  }
  // Type, number of instructions, instructions, licence, attach type; then the name.
  const count = code.length / 8;
  const attribute = makeAttribute(144, [0, programType], [4, count], [8, code], [16, licence], [68, attachType]);
  attribute.write(name.slice(0, 15), 48, "latin1");
  let result = bpf(loadCommand, attribute);
  for (let load = 1; load < maxLoads && result === -errnoAgain; load++) result = bpf(loadCommand, attribute);
  if (result < 0) {
    const why = `${describeErrno(-result)}${readVerifierLog(attribute)}`;
    throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: ${why}`);
  }
  const id = readInfo(`program ${name}`, result, Buffer.alloc(8)).readUInt32LE(4);
  return { descriptor: result, id, hook };
}

/**
 * Loads a program again to get the verifier's log, and returns the end of the log. The first load is done without a
 * log, because logging makes loading slower. Before Linux 6.4, the kernel cuts a log of more than `logBytes` at its
 * end, so that the reason is missing.
 */
function readVerifierLog(attribute: Buffer): string {
  const log = Buffer.alloc(logBytes);
  // Level, size and address of the log.
  setField(attribute, 24, 1);
  setField(attribute, 28, log.length);
  setField(attribute, 32, log);
  const result = bpf(loadCommand, attribute);
  if (result >= 0) closeDescriptor(result);
  const text = log.toString("latin1", 0, Math.max(0, log.indexOf(0))).trim();
  return text === "" ? "" : `: ${text.slice(-1_000)}`;
}

const commands = { create: 28, update: 29 };

/**
 * Attaches a program to a cgroup through a link that is pinned at a path, so that it outlives this process. An existing
 * link gets the new program in one step. If the existing link leads to a different cgroup, a new link is attached
 * before the old one is removed. Returns what was done; undefined if nothing had to be. Errors: BPF_FAILED; ENOENT if
 * the folder of the cgroup no longer exists.
 */
export function attachPinned(
  program: LoadedProgram,
  cgroup: string,
  path: string,
): "attached" | "replaced" | undefined {
  const existing = openPinned(path);
  try {
    if (existing !== undefined) {
      const info = readLink(path, existing);
      if (info.cgroupId === statSync(cgroup, { bigint: true }).ino) {
        if (info.programId === program.id) return undefined;
        const replacement = makeAttribute(16, [0, existing], [4, program.descriptor]);
        requireBpf(`program ${program.hook.name} cannot be replaced`, commands.update, replacement);
        return "replaced";
      }
    }
    const made = attach(program, cgroup);
    try {
      // After its file is removed, the old link exists only until its descriptor is closed below.
      rmSync(path, { force: true });
      pinObject(made, path);
    } finally {
      closeDescriptor(made);
    }
    return "attached";
  } finally {
    if (existing !== undefined) closeDescriptor(existing);
  }
}

/** Returns false if no link is pinned at a path, or if a pinned one was detached. Errors: BPF_FAILED. */
export function isAttached(path: string): boolean {
  const link = openPinned(path);
  if (link === undefined) return false;
  try {
    return readLink(path, link).cgroupId !== 0n;
  } finally {
    closeDescriptor(link);
  }
}

/** Attaches a program after other programs at the same cgroup; before Linux 6.17, no other order can be requested. */
function attach({ descriptor, hook }: LoadedProgram, cgroup: string): number {
  const folder = openSync(cgroup, "r");
  try {
    const result = bpf(commands.create, makeAttribute(48, [0, descriptor], [4, folder], [8, hook.attachType]));
    // Privileges cannot be the reason, because they were needed to load the program, too.
    const isExcluded = result === -errnoNotPermitted;
    const why = isExcluded ? ": another program is attached there or above without BPF_F_ALLOW_MULTI" : "";
    return checkResult(`program ${hook.name} cannot be attached to ${cgroup}${why}`, result);
  } finally {
    closeSync(folder);
  }
}

/**
 * Reads the program of a link, and its cgroup: the inode number of the cgroup's folder, or 0 if the link was detached
 * or the cgroup no longer exists. Source: `struct bpf_link_info`.
 */
function readLink(path: string, link: number): { readonly programId: number; readonly cgroupId: bigint } {
  const info = readInfo(`link ${path}`, link, Buffer.alloc(64));
  return { programId: info.readUInt32LE(8), cgroupId: info.readBigUInt64LE(16) };
}
