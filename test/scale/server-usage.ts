import { setTimeout as sleep } from "node:timers/promises";
import { usageOf } from "./proc.ts";

/** Resources used by the server process. */
export interface ServerUsage {
  /** User and system time so far, all threads, in milliseconds. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly peakRssBytes: number;
  /** JavaScript memory: heap in use and external buffers. */
  readonly heapBytes: number;
}

/** CPU time of this process so far, all threads, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Returns the usage of this process. `settle` first collects garbage, as V8 does after some idle seconds. */
export async function serverUsage(settle: boolean): Promise<ServerUsage> {
  for (let round = 0; settle && round < 3; round += 1) {
    await globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "async" });
    await sleep(100);
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  const { peakRssBytes } = usageOf(process.pid);
  return { cpuMs: cpuMs(), rssBytes: rss, peakRssBytes, heapBytes: heapUsed + external };
}
