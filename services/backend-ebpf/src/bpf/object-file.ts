/** A place in a program that `loadProgram` fills in with the descriptor of a map. */
export interface Reference {
  /** Index of the instruction. */
  readonly instruction: number;
  /** Name of the map. */
  readonly symbol: string;
}

/** The code of one section of an object file. */
export interface ProgramCode {
  /** Instructions of 8 bytes. */
  readonly code: Buffer;
  readonly references: readonly Reference[];
}

const sectionTypes = { symbols: 2, relocations: 9 };

/**
 * Reads the programs of an object file that clang made for BPF: 64 bits, little-endian, one function a section. Pure.
 * Returns them by the name of their section. Sections without references are left out; each of our programs has some.
 *
 * The constructor of `Datapath` calls it with the object file of this package, and `loadProgram` fills in the
 * references, all of which are addresses of maps (R_BPF_64_64).
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
