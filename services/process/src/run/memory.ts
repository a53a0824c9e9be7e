import { totalmem } from "node:os";
import { getHeapStatistics, setFlagsFromString } from "node:v8";

/** Returns the cgroup's memory limit or the machine's memory, whichever is smaller, in bytes. */
export function machineMemoryBytes(): number {
  // `constrainedMemory` returns 0 or a huge number if there is no limit.
  return Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem());
}

/** Returns the memory available to this process, in bytes: at most {@link machineMemoryBytes} and V8's heap limit. */
export function memoryLimitBytes(): number {
  return Math.min(getHeapStatistics().heap_size_limit, machineMemoryBytes());
}

/**
 * Keeps V8's young generation, in which new objects are allocated, at its current size.
 *
 * V8 doubles it up to 3 × 16 MiB while many new objects survive, as the objects of the first view do, and rarely
 * shrinks it. A backend, which then receives only occasional changes, would keep that memory for its whole life. With a
 * small young generation, the first view causes a few more, but shorter, collections. This is not suitable for programs
 * that allocate all the time, such as the watcher.
 *
 * V8 reads the growth factor at every collection, and the size limit only at the start.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
}

/**
 * Lets V8's old generation, which holds long-lived objects, grow by 50 % between two full garbage collections.
 *
 * By default V8 chooses the growth factor itself. While a program allocates little, the factor is 10 %. A watcher's
 * heap is nearly all long-lived state, 110 MB for 50 000 endpoints, and each change adds little garbage; with V8's
 * factor, full collections ran every few seconds, took a quarter of the CPU time of all changes, and delayed one change
 * in thirty by 0.2 s. During a backend's first view, V8's factor is 70 % or more, so that garbage from the start stays
 * for hours.
 */
export function growOldGenerationByHalf(): void {
  setFlagsFromString("--heap-growing-percent=50");
}
