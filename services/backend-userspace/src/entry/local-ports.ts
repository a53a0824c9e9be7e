import type { PortList } from "./entry.ts";

/** A range of port numbers, first and last included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Returns the local ports to try for a listener: the first follows from its name, so that it is usually the same after
 * a restart, and all others of the range come after it. `RedirectEntry` and `MapEntry` listen at them and share this
 * function, hence a file of its own. Pure.
 */
export function localPorts(name: string, { first, last }: PortRange): PortList {
  const size = last - first + 1;
  // FNV-1a
  let hash = 0x811c9dc5;
  for (const letter of name) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x01000193) >>> 0;
  return {
    includes: (port) => port >= first && port <= last,
    *[Symbol.iterator]() {
      for (let step = 0; step < size; step++) yield first + ((hash + step) % size);
    },
  };
}

/** Parses a range. *Shape:* `20000-29999`. Returns undefined for any other text. */
export function parsePortRange(text: string): PortRange | undefined {
  const [, first, last] = /^(\d{1,5})-(\d{1,5})$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  return range.first >= 1 && range.first <= range.last && range.last <= 65_535 ? range : undefined;
}
