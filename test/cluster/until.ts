import { setTimeout as sleep } from "node:timers/promises";
import { reasonOf } from "@kpng/process/log.ts";

/**
 * Calls `check` until it returns something other than undefined and false, and returns that.
 *
 * Errors: after `timeoutMs`, with `what`, the result or error of the last check, and `details`.
 */
export async function until<T>(
  what: string,
  check: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 60_000,
  details: () => Promise<string> | string = () => "",
): Promise<T> {
  const deadlineMs = performance.now() + timeoutMs;
  let last = "the check returned false";
  for (;;) {
    const startMs = performance.now();
    try {
      const value = await check();
      if (value !== undefined && value !== false) return value;
      last = "the check returned false";
    } catch (error) {
      last = reasonOf(error);
    }
    if (performance.now() > deadlineMs)
      throw new Error(`timeout after ${timeoutMs} ms: ${what} (${last})\n${await details()}`);
    // What is awaited needs the CPU, too, above all in a guest, which has only one.
    await sleep(Math.max(25, performance.now() - startMs));
  }
}
