interface TarFile {
  /** Relative path of at most 100 ASCII characters. */
  readonly name: string;
  readonly content: Uint8Array;
}

const blockBytes = 512;

/**
 * Packs files as a tar archive in the format ustar, readable by their owner. Pure. `bugReportCommand` compresses the
 * result. Separate, because it knows only this format. Source: POSIX pax, "ustar Interchange Format".
 */
export function packTar(files: readonly TarFile[], timeSeconds: number): Buffer {
  const parts = files.flatMap(({ name, content }) => {
    const padding = (blockBytes - (content.length % blockBytes)) % blockBytes;
    return [header(name, content.length, timeSeconds), content, Buffer.alloc(padding)];
  });
  // Two empty blocks end an archive.
  return Buffer.concat([...parts, Buffer.alloc(2 * blockBytes)]);
}

function header(name: string, size: number, timeSeconds: number): Buffer {
  const block = Buffer.alloc(blockBytes);
  const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;
  block.write(name, 0, 100, "latin1");
  block.write(octal(0o600, 8), 100);
  block.write(octal(0, 8), 108);
  block.write(octal(0, 8), 116);
  block.write(octal(size, 12), 124);
  block.write(octal(timeSeconds, 12), 136);
  // The checksum is computed with spaces in its own place.
  block.write("        ", 148);
  block.write("0", 156);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}
