import { BackendError } from "../types/backend-error.ts";

/**
 * Default of `--max-view-size` for a memory limit, in bytes: a third. A view of 250 000 endpoints takes 170 MB. While
 * a whole view replaces another one, both are in memory, and the rest of the process needs memory too. Pure.
 */
export function defaultViewBytes(memoryBytes: number): number {
  return Math.floor(memoryBytes / 3);
}

/**
 * Default of `--max-msg-size` for a memory limit, in bytes: 64 MiB as in KPNG, at most a 128th of the memory, and at
 * least 2 MiB. A decoded message of empty numbers takes 32 times its size. Our watchers send at most 1.5 MiB. Pure.
 */
export function defaultMessageBytes(memoryBytes: number): number {
  return Math.min(64 * 1024 * 1024, Math.max(2 * 1024 * 1024, Math.floor(memoryBytes / 128)));
}

/**
 * Checks the estimated memory of a batch or of the view against the limit, for `watchBatches`.
 *
 * Errors: VIEW_TOO_LARGE.
 */
export function checkViewBytes(what: "batch" | "view", bytes: number, maxBytes: number): void {
  if (bytes <= maxBytes) return;
  const text = `the ${what} that the watcher sent takes more than ${maxBytes} bytes of memory (--max-view-size)`;
  throw new BackendError("VIEW_TOO_LARGE", text);
}
