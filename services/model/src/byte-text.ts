/**
 * Bytes as a string with one character for each (latin1). Such a string can be a map key, is compared by content, and
 * takes 16 bytes in addition to its content; a `Uint8Array` takes 300.
 */
export type ByteText = string;

/** Returns the 4 bytes of a number from 0 to 2^32 − 1, lowest byte first. */
export function numberBytes(value: number): ByteText {
  return String.fromCharCode(value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, value >>> 24);
}

/** The inverse of {@link numberBytes}, applied to the 4 bytes at `at`. */
export function readNumber(bytes: ByteText, at = 0): number {
  const byte = (index: number): number => bytes.charCodeAt(at + index);
  return byte(0) + byte(1) * 2 ** 8 + byte(2) * 2 ** 16 + byte(3) * 2 ** 24;
}
