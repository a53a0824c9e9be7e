import { setFlagsFromString } from "node:v8";

/**
 * Keeps V8's young generation, where all objects begin, at the size that it has.
 *
 * It doubles up to 3 × 16 MiB while much of what is new stays alive, as in the first view that a node is sent, and is seldom
 * made smaller again: a program that from then on hears of a change now and then pays for it as long as it runs. With a
 * small one the first batch takes a few more, and shorter, collections. Not for a program that allocates all the time,
 * such as the watcher.
 *
 * By the factor of its growth, because V8 reads that each time, and the limit itself only at the start of the process:
 * so it holds however the program was started. A flag of a later V8 that has another name is ignored with a warning.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
}

/**
 * Lets V8's old generation, where what stays alive is moved to, grow by half before all of it is looked through for
 * garbage again.
 *
 * Left alone, V8 grows the heap of a quiet program by a tenth. A watcher's heap is nearly all state that stays, 110 MB for
 * 50 000 endpoints, to which each change adds a little garbage: it was looked through every few seconds, which took a
 * quarter of the CPU time of all changes and held up one change in thirty for a fifth of a second. When much is allocated
 * V8 would let the heap grow to more than this.
 */
export function looseOldGeneration(): void {
  setFlagsFromString("--heap-growing-percent=50");
}
