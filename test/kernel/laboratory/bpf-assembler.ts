// Instructions of BPF, for programs of tests that consist of a dozen of them, so that no test needs a compiler.
// Register 0 has results, 1 is the context at the start, 6 to 9 survive calls, and 10 is the end of the stack.

/** One instruction. Source: Documentation/bpf/standardization/instruction-set.rst. */
export function instruction(code: number, destination = 0, source = 0, offset = 0, immediate = 0): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt8(code, 0);
  bytes.writeUInt8((source << 4) | destination, 1);
  bytes.writeInt16LE(offset, 2);
  bytes.writeInt32LE(immediate | 0, 4);
  return bytes;
}

/** Loads 4 bytes. */
export const load = (to: number, from: number, offset: number): Buffer => instruction(0x61, to, from, offset);
/** Stores 4 bytes. */
export const store = (to: number, offset: number, from: number): Buffer => instruction(0x63, to, from, offset);
/** Sets the lower half of a register, and clears the upper one. */
export const set = (register: number, value: number): Buffer => instruction(0xb4, register, 0, 0, value);
/** Copies a register. */
export const copy = (to: number, from: number): Buffer => instruction(0xbf, to, from);
/** Calls a helper of the kernel by its number. */
export const call = (helper: number): Buffer => instruction(0x85, 0, 0, 0, helper);
/** Skips `count` instructions if the lower half of a register differs from a number. */
export const skipUnless = (register: number, value: number, count: number): Buffer =>
  instruction(0x56, register, 0, count, value);
/** Returns a result. */
export const finish = (result: number): readonly Buffer[] => [instruction(0xb7, 0, 0, 0, result), instruction(0x95)];
/** Adds a number to a register. */
export const add = (register: number, value: number): Buffer => instruction(0x07, register, 0, 0, value);
/** Skips `count` instructions if a register has a number; a negative count goes back. */
export const skipIf = (register: number, value: number, count: number): Buffer =>
  instruction(0x15, register, 0, count, value);
/** Sets a register to a map, whose descriptor the loader fills in: two instructions, of which it needs the index. */
export const setMap = (register: number): readonly Buffer[] => [instruction(0x18, register), instruction(0)];
/** Adds a register to 8 bytes in memory, atomically. */
export const addTo = (to: number, from: number): Buffer => instruction(0xdb, to, from);
