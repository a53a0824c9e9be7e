import { totalmem } from "node:os";
import { getHeapStatistics } from "node:v8";

/**
 * Memory available to this process, in bytes: the smallest of V8's heap limit, the cgroup's limit and the machine's
 * memory. Watchers and backends share it, to derive default limits.
 */
export function memoryLimitBytes(): number {
  // 0 or a huge number if there is no limit.
  const constrained = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.min(getHeapStatistics().heap_size_limit, constrained, totalmem());
}
