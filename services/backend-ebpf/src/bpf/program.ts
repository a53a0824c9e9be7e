import { BackendEbpfError } from "./ebpf-error.ts";
import type { KernelFunction } from "./kernel-types.ts";
import type { ProgramCode } from "./object-file.ts";
import { bpf, closeDescriptor, describeErrno, makeAttribute, readInfo, setField } from "./system-call.ts";

/** How a program is attached. Source: `enum bpf_prog_type`, `enum bpf_attach_type`. */
export interface ProgramKind {
  /** At most 15 letters, shown by tools such as bpftool. */
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

/** Objects that the references of a program lead to. */
export interface ProgramTargets {
  /** Descriptors of maps by symbol. */
  readonly maps: ReadonlyMap<string, number>;
  readonly functions: ReadonlyMap<string, KernelFunction>;
}

const commands = { load: 5, openBtf: 19, nextBtf: 23 };
/** Marks of an instruction: its immediate value is a descriptor of a map, or the id of a function of the kernel. */
const pseudo = { map: 1, function: 2 };
/** The kernel accepts functions of conntrack only in programs with a licence that is compatible with the GPL. */
const licence = Buffer.from("Dual BSD/GPL\0");
const logBytes = 1024 * 1024;
const errnoAgain = 11;
/** How often a program is loaded while signals interrupt the verifier. */
const maxLoads = 20;

/**
 * Loads a program of the object file, after its references are replaced by descriptors and ids. `Datapath` calls it for
 * each hook, and `attachPinned` of `link.ts` attaches the result. `program` is undefined if the object file lacks it.
 *
 * Errors: BPF_UNSUPPORTED if a function is missing, PROGRAM_REJECTED with the verifier's words.
 */
export function loadProgram(
  program: ProgramCode | undefined,
  kind: ProgramKind,
  targets: ProgramTargets,
): LoadedProgram {
  const { name, type, attachType } = kind;
  if (program === undefined) throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: not in the object file`);
  const code = Buffer.from(program.code);
  const modules: string[] = [];
  for (const { instruction, symbol, kind: referenceKind } of program.references) {
    const at = instruction * 8;
    const setImmediate = (mark: number, value: number): void => {
      code.writeUInt8((code.readUInt8(at + 1) & 15) | (mark << 4), at + 1);
      code.writeInt32LE(value, at + 4);
    };
    if (referenceKind === "map") {
      const map = targets.maps.get(symbol);
      if (map === undefined) throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: unknown map ${symbol}`);
      setImmediate(pseudo.map, map);
      continue;
    }
    const known = targets.functions.get(symbol);
    if (known === undefined) throw new BackendEbpfError("BPF_UNSUPPORTED", `this kernel has no function ${symbol}`);
    setImmediate(pseudo.function, known.id);
    if (known.module !== undefined && !modules.includes(known.module)) modules.push(known.module);
    // Index in the list of descriptors; 0 stands for the kernel itself.
    code.writeInt16LE(known.module === undefined ? 0 : modules.indexOf(known.module) + 1, at + 2);
  }
  const opened = modules.map(openModuleTypes);
  const descriptors = Buffer.from(new Int32Array([0, ...opened]).buffer);
  const attribute = makeAttribute(144, [0, type], [4, code.length / 8], [8, code], [16, licence], [68, attachType]);
  setField(attribute, 120, descriptors);
  attribute.write(name.slice(0, 15), 48, "latin1");
  let result = bpf(commands.load, attribute);
  for (let load = 1; load < maxLoads && result.kind === "failed" && result.errno === errnoAgain; load++) {
    result = bpf(commands.load, attribute);
  }
  const log = result.kind === "failed" ? readVerifierLog(attribute) : "";
  for (const descriptor of opened) closeDescriptor(descriptor);
  if (result.kind === "done") {
    const id = readInfo(`program ${name}`, result.value, Buffer.alloc(8)).readUInt32LE(4);
    return { descriptor: result.value, id, kind };
  }
  throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: ${describeErrno(result.errno)}${log}`);
}

/** Loads a program again for its log, because a log slows the load down. Returns the log's end. */
function readVerifierLog(attribute: Buffer): string {
  const log = Buffer.alloc(logBytes);
  setField(attribute, 24, 1);
  setField(attribute, 28, log.length);
  setField(attribute, 32, log);
  const result = bpf(commands.load, attribute);
  if (result.kind === "done") closeDescriptor(result.value);
  const text = log.toString("latin1", 0, Math.max(0, log.indexOf(0))).trim();
  return text === "" ? "" : `: ${text.slice(-1_000)}`;
}

/** Opens the types of a module, which is found by its name among all that are loaded. Errors: BPF_UNSUPPORTED. */
function openModuleTypes(module: string): number {
  for (let id = 0; ; ) {
    const next = makeAttribute(12, [0, id]);
    const listed = bpf(commands.nextBtf, next);
    if (listed.kind === "failed") {
      const reason = `${describeErrno(listed.errno)}; this needs the capability SYS_ADMIN`;
      throw new BackendEbpfError("BPF_UNSUPPORTED", `the types of module ${module} cannot be opened: ${reason}`);
    }
    id = next.readUInt32LE(4);
    const opened = bpf(commands.openBtf, makeAttribute(12, [0, id]));
    if (opened.kind === "failed") continue;
    const name = Buffer.alloc(64);
    const info = makeAttribute(32, [16, name], [24, name.length]);
    readInfo("types of a module", opened.value, info);
    if (name.toString("latin1", 0, name.indexOf(0)) === module) return opened.value;
    closeDescriptor(opened.value);
  }
}
