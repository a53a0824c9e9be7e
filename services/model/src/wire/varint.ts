/** Writes a number from 0 to 2^31 − 1 as protobuf does; returns where it ends. */
export function writeVarint(bytes: Uint8Array, start: number, value: number): number {
  let end = start;
  for (let rest = value; ; rest >>>= 7) {
    bytes[end++] = rest < 0x80 ? rest : (rest & 0x7f) | 0x80;
    if (rest < 0x80) return end;
  }
}
