import { BackendEbpfError } from "./ebpf-error.ts";
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

const loadCommand = 5;
/** Marks an instruction whose immediate value is a descriptor of a map. */
const pseudoMap = 1;
/** Some helpers are only for programs with a licence that is compatible with the GPL. */
const licence = Buffer.from("Dual BSD/GPL\0");
const logBytes = 1024 * 1024;
const errnoAgain = 11;
/** How often a program is loaded while signals interrupt the verifier. */
const maxLoads = 20;

/**
 * Loads a program of the object file, after its references are replaced by descriptors. `Datapath` calls it for each
 * hook, and `attachPinned` of `link.ts` attaches the result. `program` is undefined if the object file lacks it; `maps`
 * are descriptors by symbol.
 *
 * Errors: PROGRAM_REJECTED with the verifier's words.
 */
export function loadProgram(
  program: ProgramCode | undefined,
  kind: ProgramKind,
  maps: ReadonlyMap<string, number>,
): LoadedProgram {
  const { name, type, attachType } = kind;
  if (program === undefined) throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: not in the object file`);
  const code = Buffer.from(program.code);
  for (const { instruction, symbol } of program.references) {
    const at = instruction * 8;
    const map = maps.get(symbol);
    if (map === undefined) throw new BackendEbpfError("PROGRAM_REJECTED", `program ${name}: unknown map ${symbol}`);
    code.writeUInt8((code.readUInt8(at + 1) & 15) | (pseudoMap << 4), at + 1);
    code.writeInt32LE(map, at + 4);
  }
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

/** Loads a program again for its log, because a log slows the load down. Returns the log's end. */
function readVerifierLog(attribute: Buffer): string {
  const log = Buffer.alloc(logBytes);
  setField(attribute, 24, 1);
  setField(attribute, 28, log.length);
  setField(attribute, 32, log);
  const result = bpf(loadCommand, attribute);
  if (result.kind === "done") closeDescriptor(result.value);
  const text = log.toString("latin1", 0, Math.max(0, log.indexOf(0))).trim();
  return text === "" ? "" : `: ${text.slice(-1_000)}`;
}
