import { performance } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { measureMemory } from "node:vm";

/**
 * Collects V8's garbage after a load has ended, from now on for the life of the process. `kpng SOURCE to-api` calls it
 * at start.
 *
 * V8 collects only when something allocates. A watcher that was busy and is now idle would keep the garbage of its last
 * load, up to half of its heap (`growOldGenerationByHalf`), and every free page. A busy watcher is left alone: it
 * allocates.
 *
 * *Cost:* a marking of the heap in steps beside other work, and one pause at its end: 0.1 s for 140 MB; at most every
 * 15 s, and only if there is enough to free. V8 returns the free pages about 8 s later.
 */
export function collectWhenIdle(): void {
  let live = memoryInUse();
  let last = performance.eventLoopUtilization();
  let pausedChecks = 0;
  setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    // In this mode V8 follows a collection with one that returns free pages; otherwise it may put that off while other
    // processes want the cores, which it takes for work of this one. A later V8 without the flag ignores it.
    setFlagsFromString(utilization < idleShare ? "--memory-saver-mode" : "--no-memory-saver-mode");
    const bytes = memoryInUse();
    live = Math.min(live, bytes);
    pausedChecks = Math.max(0, pausedChecks - 1);
    if (pausedChecks > 0 || !isWorthCollecting({ utilization, bytes, liveBytes: live })) return;
    pausedChecks = checksBetweenCollections;
    void startCollection().then(() => {
      live = memoryInUse();
    });
  }, checkMs).unref();
}

/** Measurements for {@link isWorthCollecting}. */
export interface IdleState {
  /** Share of the last seconds in which the event loop was busy. */
  readonly utilization: number;
  /** Memory in use, garbage included. */
  readonly bytes: number;
  /** The least memory in use since the last collection, or since the start. */
  readonly liveBytes: number;
}

/** True if the process is idle, and holds a quarter more than before the load, and at least 8 MiB. Pure. */
export function isWorthCollecting({ utilization, bytes, liveBytes }: IdleState): boolean {
  return utilization < idleShare && bytes - liveBytes > Math.max(minGrowthBytes, liveBytes / 4);
}

/** Time between two checks, in milliseconds. */
const checkMs = 3_000;

const checksBetweenCollections = 5;

/** A change to 1 000 nodes takes 4 % of a second. So one each second is busy enough: a collection would delay some. */
const idleShare = 0.02;

const minGrowthBytes = 8 * 1_024 * 1_024;

/** Objects in V8's heap and the buffers that they keep, in bytes; both with garbage. */
function memoryInUse(): number {
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return heap + external;
}

/**
 * Resolves when the heap is collected. A measurement is the only way to start a collection that marks in steps: `gc`
 * of `--expose-gc` stops the thread for the whole time, also with `execution: "async"`.
 */
async function startCollection(): Promise<void> {
  const { emitWarning } = process;
  // The warning that this function is experimental tells an operator nothing; it is emitted during the call.
  process.emitWarning = () => undefined;
  try {
    const done = measureMemory({ mode: "summary", execution: "eager" });
    process.emitWarning = emitWarning;
    await done;
  } catch {
    // A later Node.js may have no such function, or the process ends.
  } finally {
    process.emitWarning = emitWarning;
  }
}
