/** How many shards a map has; a put copies one shard and the array of all of them. */
const shardCount = 512;

/**
 * A map that never changes: `with` returns another one that shares all but one shard with it.
 *
 * A put costs a copy of 512 pointers and of 1/512 of the entries, some microseconds at 100 000 entries, where copying a
 * whole Map costs milliseconds. Iteration is in no order that means anything.
 */
export class ShardedMap<V> {
  static #empty = new ShardedMap<never>(
    Array.from({ length: shardCount }, () => new Map<string, never>()),
    0,
  );

  readonly size: number;
  readonly #shards: readonly ReadonlyMap<string, V>[];

  private constructor(shards: readonly ReadonlyMap<string, V>[], size: number) {
    this.#shards = shards;
    this.size = size;
  }

  static empty<V>(): ShardedMap<V> {
    return ShardedMap.#empty;
  }

  static from<V>(entries: Iterable<readonly [string, V]>): ShardedMap<V> {
    const shards = Array.from({ length: shardCount }, () => new Map<string, V>());
    let size = 0;
    for (const [key, value] of entries) {
      const shard = shards[shardOf(key)] as Map<string, V>;
      if (!shard.has(key)) size += 1;
      shard.set(key, value);
    }
    return new ShardedMap(shards, size);
  }

  get(key: string): V | undefined {
    return this.#shards[shardOf(key)]?.get(key);
  }

  /** The same map with `value` at `key`, or without `key` if `value` is undefined. */
  with(key: string, value: V | undefined): ShardedMap<V> {
    return this.withAll([[key, value]]);
  }

  /** Likewise, for many; of several values for a key the last one holds. *Cost:* each shard is copied at most once. */
  withAll(entries: Iterable<readonly [string, V | undefined]>): ShardedMap<V> {
    const shards = this.#shards.slice();
    let size = this.size;
    for (const [key, value] of entries) {
      const index = shardOf(key);
      const shard = shards[index] as ReadonlyMap<string, V>;
      const had = shard.has(key);
      if (value === undefined && !had) continue;
      const copy = shard === this.#shards[index] ? new Map(shard) : (shard as Map<string, V>);
      if (value === undefined) copy.delete(key);
      else copy.set(key, value);
      shards[index] = copy;
      size += value === undefined ? -1 : had ? 0 : 1;
    }
    return shards.every((shard, index) => shard === this.#shards[index]) ? this : new ShardedMap(shards, size);
  }

  /**
   * The keys whose values are not the same object as in `before`, keys of either map that the other lacks included.
   *
   * *Cost:* 512 comparisons and the entries of the shards that differ, where the two maps come from one another; nothing
   * for a map that is the same.
   */
  *changedKeys(before: ShardedMap<V>): Iterable<string> {
    if (before === this) return;
    // Not entries(): an array for each of 512 shards costs more than all the comparisons.
    for (let index = 0; index < shardCount; index += 1) {
      const shard = this.#shards[index];
      const old = before.#shards[index];
      if (old === shard || old === undefined || shard === undefined) continue;
      for (const [key, value] of shard) if (old.get(key) !== value) yield key;
      for (const key of old.keys()) if (!shard.has(key)) yield key;
    }
  }

  *keys(): Iterable<string> {
    for (const shard of this.#shards) yield* shard.keys();
  }

  *values(): Iterable<V> {
    for (const shard of this.#shards) yield* shard.values();
  }

  *entries(): Iterable<readonly [string, V]> {
    for (const shard of this.#shards) yield* shard.entries();
  }
}

/** FNV-1a over UTF-16 units, folded to a shard's number. */
function shardOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < key.length; index += 1) hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
  return (hash ^ (hash >>> 16)) & (shardCount - 1);
}
