import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { openPinned, pinObject } from "./bpf-map.ts";
import {
  BackendEbpfError,
  bpf,
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
 * our programs has some. Source of the offsets: elf(5). Pure.
 *
 * `loadProgram` resolves the references, all of which are addresses of maps (R_BPF_64_64).
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

/** How a program is attached. Source: `enum bpf_prog_type`, `enum bpf_attach_type`. */
export interface ProgramKind {
  /** At most 15 characters; shown by tools such as bpftool. */
  readonly name: string;
  readonly type: number;
  readonly attachType: number;
}

/** A program in the kernel. */
export interface LoadedProgram {
  readonly descriptor: number;
  readonly id: number;
  readonly kind: ProgramKind;
}

const loadCommand = 5;
/** Marks an instruction whose immediate value is a map descriptor. */
const pseudoMap = 1;
/** Some helpers may be used only by programs with a GPL-compatible licence. */
const licence = Buffer.from("Dual BSD/GPL\0");
const logBytes = 1024 * 1024;
const errnoAgain = 11;
/**
 * Maximum number of attempts to load a program while signals interrupt the verifier (libbpf: 5). With 20, all starts
 * succeeded in a test with a signal every 100 ms.
 */
const maxLoads = 20;

/**
 * Loads a program from the object file, after replacing its references with descriptors. `program` is undefined if the
 * object file lacks it; `maps` contains the descriptors, keyed by symbol.
 *
 * Errors: PROGRAM_REJECTED with the verifier's message.
 */
export function loadProgram(
  program: ProgramCode | undefined,
  kind: ProgramKind,
  maps: ReadonlyMap<string, number>,
): LoadedProgram {
  const { name, type, attachType } = kind;
  if (program === undefined)
    throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name} is missing from the object file of kpng-ebpf`);
  const code = Buffer.from(program.code);
  for (const { instruction, symbol } of program.references) {
    const at = instruction * 8;
    const map = maps.get(symbol);
    if (map === undefined) throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: unknown map ${symbol}`);
    code.writeUInt8((code.readUInt8(at + 1) & 15) | (pseudoMap << 4), at + 1);
    code.writeInt32LE(map, at + 4);
  }
  // Type, number of instructions, instructions, licence, attach type; then the name.
  const attribute = makeAttribute(144, [0, type], [4, code.length / 8], [8, code], [16, licence], [68, attachType]);
  attribute.write(name.slice(0, 15), 48, "latin1");
  let result = bpf(loadCommand, attribute);
  for (let load = 1; load < maxLoads && result.kind === "failed" && result.errno === errnoAgain; load++) {
    result = bpf(loadCommand, attribute);
  }
  if (result.kind === "done") {
    const id = readInfo(`program ${name}`, result.value, Buffer.alloc(8)).readUInt32LE(4);
    return { descriptor: result.value, id, kind };
  }
  const why = `${describeErrno(result.errno)}${readVerifierLog(attribute)}`;
  throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: ${why}`);
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
  if (result.kind === "done") closeDescriptor(result.value);
  const text = log.toString("latin1", 0, Math.max(0, log.indexOf(0))).trim();
  return text === "" ? "" : `: ${text.slice(-1_000)}`;
}

/** What happened to a link: it was created, its program was replaced, or it was already correct. */
type LinkChange = "attached" | "replaced" | "none";

const commands = { create: 28, update: 29 };
const errnoNotPermitted = 1;

/**
 * Attaches a program to a cgroup through a link that is pinned at a path, so that it outlives this process. An existing
 * link gets the new program in one step. If the existing link leads to a different cgroup, a new link is attached
 * before the old one is removed. Errors: BPF_FAILED; ENOENT if the folder of the cgroup no longer exists.
 */
export function attachPinned(program: LoadedProgram, cgroup: string, path: string): LinkChange {
  const existing = openPinned(path);
  try {
    const info = existing === undefined ? undefined : readInfo(`link ${path}`, existing, Buffer.alloc(64));
    const isThere = info !== undefined && leadsTo(info, cgroup);
    // At offset 8 is the id of the link's program.
    if (isThere && info.readUInt32LE(8) === program.id) return "none";
    if (isThere && existing !== undefined) {
      requireBpf(
        `program ${program.kind.name} cannot be replaced`,
        commands.update,
        makeAttribute(16, [0, existing], [4, program.descriptor]),
      );
      return "replaced";
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
    // For a detached link, the kernel reports cgroup 0.
    return readInfo(`link ${path}`, link, Buffer.alloc(64)).readUInt32LE(16) !== 0;
  } finally {
    closeDescriptor(link);
  }
}

/** Attaches a program after other programs at the same cgroup; before Linux 6.17, no other order can be requested. */
function attach({ descriptor, kind }: LoadedProgram, cgroup: string): number {
  const folder = openSync(cgroup, "r");
  try {
    const result = bpf(commands.create, makeAttribute(48, [0, descriptor], [4, folder], [8, kind.attachType]));
    if (result.kind === "done") return result.value;
    // Privileges cannot be the reason, because they were needed to load the program, too.
    const isExcluded = result.errno === errnoNotPermitted;
    const why = isExcluded ? ": another program is attached there or above without BPF_F_ALLOW_MULTI" : "";
    const failure = `program ${kind.name} cannot be attached to ${cgroup}: ${describeErrno(result.errno)}${why}`;
    throw new BackendEbpfError("BPF_FAILED", failure);
  } finally {
    closeSync(folder);
  }
}

/**
 * Whether a link is attached to `cgroup`. The id of a cgroup is the inode number of its folder; if a link's cgroup no
 * longer exists, its target is 0. Source: `struct bpf_link_info`.
 */
function leadsTo(info: Buffer, cgroup: string): boolean {
  return info.readBigUInt64LE(16) === statSync(cgroup, { bigint: true }).ino;
}
