/** A range of port numbers, first and last included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** Ports that are tried for one listener. */
const attempts = 64;

/**
 * Returns the local ports to try for a listener: the first follows from its name, so that it is usually the same after
 * a restart, and the others come after it. `RedirectEntry` and `MapEntry` listen at them. Pure.
 */
export function localPorts(name: string, { first, last }: PortRange): readonly number[] {
  const size = last - first + 1;
  // FNV-1a
  let hash = 0x811c9dc5;
  for (const letter of name) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x01000193) >>> 0;
  return Array.from({ length: Math.min(attempts, size) }, (_, step) => first + ((hash + step) % size));
}

/** Parses a range. *Shape:* `20000-29999`. Returns undefined for any other text. */
export function parsePortRange(text: string): PortRange | undefined {
  const [, first, last] = /^(\d{1,5})-(\d{1,5})$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  return range.first >= 1 && range.first <= range.last && range.last <= 65_535 ? range : undefined;
}
