import { readFileSync } from "node:fs";

/** Resource usage of a process, as counted by the kernel. */
export interface ProcessUsage {
  /** User and system time so far, in milliseconds. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  /** Peak RSS. */
  readonly peakRssBytes: number;
}

/** Clock ticks per second in /proc: 100 on every Linux that Node.js supports. */
const ticksPerSecond = 100;

/** Source: proc(5), /proc/PID/stat and status. */
export function usageOf(pid: number): ProcessUsage {
  // The process name in parentheses may contain spaces; the fields follow it.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
  const ticks = Number(fields[11]) + Number(fields[12]);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? 0);
  return { cpuMs: (ticks * 1000) / ticksPerSecond, rssBytes: kib("VmRSS") * 1024, peakRssBytes: kib("VmHWM") * 1024 };
}

/** Time of the machine's monotonic clock in milliseconds. Equal in all processes, unlike performance.now(). */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

export function mebibytes(bytes: number): string {
  return `${Math.round(bytes / 1024 / 1024)} MiB`;
}

/** Returns the value below which the given share of the values lies; NaN if there are none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}
