import { createRequire } from "node:module";
import { getSystemErrorMessage } from "node:util";
import { CodedError } from "@kpng/process/process-error.ts";

/** Error codes of kpng-ebpf. `docs/errors.md` explains each. */
type BackendEbpfErrorCode = "BPF_UNSUPPORTED" | "BPF_FAILED" | "PROGRAM_REJECTED";

/** An error of the eBPF backend. */
export class BackendEbpfError extends CodedError<BackendEbpfErrorCode> {
  override readonly name = "BackendEbpfError";
}

type Koffi = typeof import("koffi");

/** Number of the system call bpf(2), keyed by processor. */
const systemCallNumbers: Readonly<Partial<Record<NodeJS.Architecture, number>>> = { x64: 321, arm64: 280 };
/** BPF_OBJ_GET_INFO_BY_FD. */
const objectInfoCommand = 15;
/** The address that mmap(2) returns after a failure. */
const mapFailed = 0xffff_ffff_ffff_ffffn;
const protReadWrite = 3;
const mapShared = 1;
const solSocket = 1;
const soNetnsCookie = 71;
const familyInet = 2;
const socketDatagram = 2;

let loaded: CLibrary | undefined;

type CLibrary = ReturnType<typeof loadCLibrary>;

/**
 * Returns the C library functions that this backend calls. Only this file uses koffi.
 *
 * Loads koffi at the first call, not at startup: `kpng` contains all backends, and the others must start even on a
 * platform for which koffi has no native module.
 */
function loadCLibrary() {
  const bpfNumber = systemCallNumbers[process.arch];
  if (bpfNumber === undefined) {
    throw new BackendEbpfError("BPF_UNSUPPORTED", `processors of type ${process.arch} are not supported`);
  }
  try {
    const koffi: Koffi = createRequire(import.meta.url)("koffi");
    // The C library that Node.js itself runs on, glibc or musl.
    const library = koffi.load(null);
    return {
      bpfNumber,
      koffi,
      syscall: library.func("long syscall(long, long, uint8_t *, long)"),
      mmap: library.func("void *mmap(intptr_t, size_t, int, int, int, long)"),
      socket: library.func("int socket(int, int, int)"),
      getOption: library.func("int getsockopt(int, int, int, _Out_ uint8_t *, _Inout_ uint32_t *)"),
      close: library.func("int close(int)"),
    };
  } catch (cause) {
    throw new BackendEbpfError("BPF_UNSUPPORTED", "the C library cannot be called through koffi", { cause });
  }
}

function cLibrary(): CLibrary {
  loaded ??= loadCLibrary();
  return loaded;
}

/**
 * A field of the argument of bpf(2): its offset in bytes, and its value. A number takes 4 bytes; a buffer stands for
 * its address.
 */
export type AttributeField = readonly [offset: number, value: number | Buffer];

/** Buffers, keyed by the argument that contains their addresses. They must live as long as the argument. */
const pointees = new WeakMap<Buffer, Buffer[]>();

/**
 * Returns an argument for bpf(2). Its size must include the last field that is set: the kernel takes the fields after
 * it as 0. Source: `union bpf_attr` of linux/bpf.h.
 */
export function makeAttribute(size: number, ...fields: readonly AttributeField[]): Buffer {
  const attribute = Buffer.alloc(size);
  for (const [offset, value] of fields) setField(attribute, offset, value);
  return attribute;
}

/** Sets a field of an argument for bpf(2). A buffer is not garbage-collected as long as the argument exists. */
export function setField(attribute: Buffer, offset: number, value: number | Buffer): void {
  if (typeof value === "number") {
    attribute.writeUInt32LE(value >>> 0, offset);
    return;
  }
  attribute.writeBigUInt64LE(cLibrary().koffi.address(value), offset);
  pointees.set(attribute, [...(pointees.get(attribute) ?? []), value]);
}

/** Calls bpf(2). Returns its result, or the negative error number. Errors: BPF_UNSUPPORTED if it cannot be called. */
export function bpf(command: number, attribute: Buffer): number {
  const { bpfNumber, syscall, koffi } = cLibrary();
  const result = Number(syscall(bpfNumber, command, attribute, attribute.length));
  return result < 0 ? -koffi.errno() : result;
}

/**
 * Calls bpf(2) on another thread, for calls that block. Resolves when the call has returned, with true if it succeeded.
 */
export function bpfOffThread(command: number, attribute: Buffer): Promise<boolean> {
  const { bpfNumber, syscall } = cLibrary();
  return new Promise((resolve) => {
    syscall.async(bpfNumber, command, attribute, attribute.length, (error: unknown, value: unknown) => {
      // This reference keeps `attribute` alive, because the kernel reads its memory until the call returns.
      resolve(attribute.length > 0 && !error && Number(value) >= 0);
    });
  });
}

/** Calls bpf(2) and returns its result. Errors: as {@link checkResult}. */
export function requireBpf(what: string, command: number, attribute: Buffer): number {
  return checkResult(what, bpf(command, attribute));
}

/** Returns the result of {@link bpf}. Errors: BPF_FAILED with the system's error message if it is negative. */
export function checkResult(what: string, result: number): number {
  if (result >= 0) return result;
  throw new BackendEbpfError("BPF_FAILED", `${what}: ${describeErrno(-result)}`);
}

/** Fills a buffer with the kernel's description of a map, program, link or type. Errors: BPF_FAILED. */
export function readInfo(what: string, descriptor: number, info: Buffer): Buffer {
  const attribute = makeAttribute(16, [0, descriptor], [4, info.length], [8, info]);
  requireBpf(`${what} cannot be examined`, objectInfoCommand, attribute);
  return info;
}

/** *Shape:* `errno 1 (operation not permitted)`. */
export function describeErrno(errno: number): string {
  return `errno ${errno} (${getSystemErrorMessage(-errno) ?? "unknown"})`;
}

/** Closes a file descriptor. */
export function closeDescriptor(descriptor: number): void {
  cLibrary().close(descriptor);
}

/**
 * Maps the memory of an array map that permits this. The mapping exists for as long as the process does. Errors:
 * BPF_FAILED.
 */
export function mapMemory(descriptor: number, bytes: number): Buffer {
  const { mmap, koffi } = cLibrary();
  const pointer: unknown = mmap(0, bytes, protReadWrite, mapShared, descriptor, 0);
  if (pointer === null || koffi.address(pointer) === mapFailed) {
    const reason = describeErrno(koffi.errno());
    throw new BackendEbpfError("BPF_FAILED", `a map of ${bytes} bytes cannot be mapped into memory: ${reason}`);
  }
  return Buffer.from(koffi.view(pointer, bytes));
}

/**
 * Returns the number by which BPF programs identify the network namespace of this process (SO_NETNS_COOKIE). Errors:
 * BPF_UNSUPPORTED.
 */
export function readNetnsCookie(): bigint {
  const { socket, getOption, close } = cLibrary();
  const descriptor: number = socket(familyInet, socketDatagram, 0);
  const cookie = Buffer.alloc(8);
  const status: number = getOption(descriptor, solSocket, soNetnsCookie, cookie, [cookie.length]);
  close(descriptor);
  if (status === 0) return cookie.readBigUInt64LE(0);
  throw new BackendEbpfError("BPF_UNSUPPORTED", "network namespaces have no cookie before Linux 5.14");
}
