/** Mulberry32: small, seeded, good enough to choose. Numbers from 0 to below 1. */
export function makeRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Chooses one of the values. */
export function makePick(random: () => number): <T>(...values: readonly T[]) => T {
  return <T>(...values: readonly T[]) => values[Math.floor(random() * values.length)] as T;
}
