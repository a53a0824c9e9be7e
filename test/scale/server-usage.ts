import { setTimeout as sleep } from "node:timers/promises";
import { usageOf } from "./proc.ts";

/** What the server's process has used. */
export interface ServerUsage {
  /** User and system time so far, all threads, in milliseconds. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly peakRssBytes: number;
  /** Of JavaScript: heap in use and buffers outside of it. */
  readonly heapBytes: number;
}

/** CPU time of this process so far, all threads, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Of this process. With `settle`, what is not needed any more is given back first, as V8 does by itself after idle seconds. */
export async function serverUsage(settle: boolean): Promise<ServerUsage> {
  for (let round = 0; settle && round < 3; round += 1) {
    await globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "async" });
    await sleep(100);
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  const { peakRssBytes } = usageOf(process.pid);
  return { cpuMs: cpuMs(), rssBytes: rss, peakRssBytes, heapBytes: heapUsed + external };
}
