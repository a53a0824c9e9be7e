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
