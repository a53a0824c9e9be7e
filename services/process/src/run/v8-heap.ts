import { setFlagsFromString } from "node:v8";

/**
 * Keeps V8's young generation, in which new objects are allocated, at its current size. Backends call it at start.
 *
 * V8 doubles it up to 3 × 16 MiB while many new objects survive, as those of the first view do, and rarely shrinks it.
 * A backend, which then receives only occasional changes, would keep that memory for its whole life. With a small young
 * generation the first view takes a few more, but shorter, collections. Not suitable for programs that allocate all the
 * time, such as the watcher.
 *
 * It sets the growth factor, which V8 reads at every collection, and not the size limit, which V8 reads only at start.
 * A later V8 without this flag ignores it with a warning.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
}

/**
 * Lets V8's old generation, which holds long-lived objects, grow by 50 % between two full garbage collections.
 *
 * By default V8 chooses a factor. While a program allocates little, it is 10 %. The heap of a watcher is nearly all
 * long-lived state, 110 MB for 50 000 endpoints, and each change adds little garbage: full collections came every few
 * seconds, took a quarter of the CPU time of all changes, and delayed one change in thirty by 0.2 s. During the first
 * view of a backend, the factor is 70 % and more, so that garbage of the start stays for hours.
 *
 * `kpng SOURCE to-api` and `prepareBackend` call it at start.
 */
export function growOldGenerationByHalf(): void {
  setFlagsFromString("--heap-growing-percent=50");
}
