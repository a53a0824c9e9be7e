import { compareText, lowerBound } from "@kpng/model/collections.ts";

/** Entries per chunk. A change copies one chunk and the list of chunks; both are short, even with 10 000 keys. */
const chunkSize = 128;

type Chunk<K, V> = readonly (readonly [K, V])[];

/**
 * An immutable map that iterates in ascending order of its keys.
 *
 * A changed copy shares its unchanged parts with the original, so an old and a new view together need little memory.
 * Chunks are split but never merged, so that chunks may be short after many deletions; empty ones are removed.
 *
 * *Cost:* `get` O(log n); `with` copies the list of chunks and each chunk that has a change.
 */
export class SortedMap<K extends string, V extends NonNullable<unknown>> implements ReadonlyMap<K, V> {
  /** Chunks in ascending order of their keys; none is empty. */
  readonly #chunks: readonly Chunk<K, V>[];
  readonly size: number;

  constructor(chunks: readonly Chunk<K, V>[] = [], size = 0) {
    this.#chunks = chunks;
    this.size = size;
  }

  /** Returns a copy with these changes; the value undefined removes its key. */
  with(changes: ReadonlyMap<K, V | undefined>): SortedMap<K, V> {
    const changesByChunk = Map.groupBy(changes, ([key]) => this.#chunkOf(key));
    let size = this.size;
    const chunks = [...this.#chunks];
    // Go from the last chunk to the first, so that the remaining indexes stay valid after a chunk is split or removed.
    for (const [index, ofChunk] of [...changesByChunk].sort(([a], [b]) => b - a)) {
      const before = chunks[index] ?? [];
      const entries = new Map(before);
      for (const [key, value] of ofChunk) {
        if (value === undefined) entries.delete(key);
        else entries.set(key, value);
      }
      size += entries.size - before.length;
      chunks.splice(index, 1, ...split([...entries].sort(([a], [b]) => compareText(a, b))));
    }
    return new SortedMap(chunks, size);
  }

  get(key: K): V | undefined {
    const chunk = this.#chunks[this.#chunkOf(key)] ?? [];
    const entry = chunk[lowerBound(chunk.length, (at) => compareText(chunk[at]?.[0] ?? "", key) < 0)];
    return entry?.[0] === key ? entry[1] : undefined;
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  *entries(): Generator<[K, V], undefined, unknown> {
    for (const chunk of this.#chunks) for (const [key, value] of chunk) yield [key, value];
  }

  *keys(): Generator<K, undefined, unknown> {
    for (const chunk of this.#chunks) for (const [key] of chunk) yield key;
  }

  *values(): Generator<V, undefined, unknown> {
    for (const chunk of this.#chunks) for (const [, value] of chunk) yield value;
  }

  [Symbol.iterator](): Generator<[K, V], undefined, unknown> {
    return this.entries();
  }

  forEach(visit: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this) visit(value, key, this);
  }

  /** Returns the index of the last chunk that begins at or before `key`; 0 if none does. */
  #chunkOf(key: K): number {
    const chunks = this.#chunks;
    return Math.max(0, lowerBound(chunks.length, (at) => compareText(chunks[at]?.[0]?.[0] ?? "", key) <= 0) - 1);
  }
}

function split<K, V>(entries: Chunk<K, V>): Chunk<K, V>[] {
  if (entries.length <= 2 * chunkSize) return entries.length === 0 ? [] : [entries];
  const chunks: Chunk<K, V>[] = [];
  for (let start = 0; start < entries.length; start += chunkSize) chunks.push(entries.slice(start, start + chunkSize));
  return chunks;
}
