/**
 * Returns a generator of numbers from 0 up to but not including 1: the same sequence for the same seed, for simulations
 * and tests. Source: Mulberry32, which is small and good enough for both.
 */
export function makeRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Returns a generator of whole numbers from 0 up to but not including its argument. */
export function makeRandomBelow(random: () => number): (below: number) => number {
  return (below) => Math.floor(random() * below);
}

/** Returns a function that chooses one of its arguments. */
export function makePick(random: () => number): <T>(...values: readonly T[]) => T {
  return <T>(...values: readonly T[]) => values[Math.floor(random() * values.length)] as T;
}
