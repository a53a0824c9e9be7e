import { totalmem } from "node:os";
import { performance } from "node:perf_hooks";
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from "node:v8";
import { measureMemory } from "node:vm";

/**
 * Collects V8's garbage once after each load, from now on for the life of the process.
 *
 * V8 collects only when something allocates. A watcher that becomes idle after a load would keep the load's garbage, up
 * to half of its heap (`growOldGenerationByHalf`), and every free page. Single changes leave little garbage.
 *
 * *Cost:* the heap is marked in steps alongside other work, followed by one pause, which takes 0.1 s for 140 MB. This
 * happens at most every 15 s, and only if there is enough to free. V8 returns the free pages about 8 s later.
 */
export function collectWhenIdle(): void {
  let live = memoryInUse();
  let last = performance.eventLoopUtilization();
  let wasBusy = true;
  let saverChecksLeft = 0;
  setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    wasBusy ||= utilization >= busyShare;
    const bytes = memoryInUse();
    live = Math.min(live, bytes);
    if (saverChecksLeft > 0) {
      saverChecksLeft -= 1;
      if (saverChecksLeft === 0) setFlagsFromString("--no-memory-saver-mode");
      return;
    }
    if (!isWorthCollecting({ wasBusy, utilization, bytes, liveBytes: live })) return;
    wasBusy = false;
    saverChecksLeft = saverChecks;
    // In this mode, V8 follows a collection with another one that returns free pages. Otherwise V8 may postpone that
    // second collection while other processes use the cores, because it mistakes their load for activity of this
    // process. The mode is not kept longer than needed, because it makes V8 save memory at the expense of speed. A
    // later V8 without this flag ignores it.
    setFlagsFromString("--memory-saver-mode");
    void startCollection().then(() => {
      live = memoryInUse();
    });
  }, checkMs).unref();
}

/** Measurements for {@link isWorthCollecting}. */
interface IdleState {
  /** True if the process was busy since the last collection, or just started. */
  readonly wasBusy: boolean;
  /** Share of the last few seconds during which the event loop was busy. */
  readonly utilization: number;
  /** Memory in use, including garbage and free pages. */
  readonly bytes: number;
  /** Minimum of the memory in use since the last collection, or since the start. */
  readonly liveBytes: number;
}

/**
 * True if the process is idle after a load and its memory has grown by more than a quarter and more than 8 MiB. Pure.
 */
export function isWorthCollecting({ wasBusy, utilization, bytes, liveBytes }: IdleState): boolean {
  return wasBusy && utilization < idleShare && bytes - liveBytes > Math.max(minGrowthBytes, liveBytes / 4);
}

/** Time between two checks, in milliseconds. */
const checkMs = 3_000;

/**
 * Number of checks for which V8's memory-saver mode stays on after a collection; V8 returns free pages after 8 to 12 s.
 */
const saverChecks = 5;

/**
 * A process is idle if its event loop is busy for less than this share. A change to 1 000 nodes takes 4 % of a second,
 * so a watcher with one change per second is not idle; a collection would delay some of these changes.
 */
const idleShare = 0.02;

/**
 * A load keeps the event loop busy for at least this share of a few seconds. Single changes stay below it; each leaves
 * a few kilobytes of garbage, and a collection would cost more than the changes themselves.
 */
const busyShare = 0.1;

const minGrowthBytes = 8 * 1_024 * 1_024;

/**
 * Returns the memory of V8's old generation and of all buffers, in bytes. It includes garbage, and pages that V8 keeps
 * free after its own collections. The young generation is left out, because V8 collects it by itself and its size
 * depends on when that last happened.
 */
function memoryInUse(): number {
  const old = getHeapSpaceStatistics().filter(({ space_name: name }) => !name.startsWith("new_"));
  return old.reduce((sum, { physical_space_size: bytes }) => sum + bytes, getHeapStatistics().external_memory);
}

/**
 * Resolves when the heap has been collected. A memory measurement is the only way to start a collection that marks in
 * steps; `gc` from `--expose-gc` stops the thread for the whole time, even with `execution: "async"`.
 */
async function startCollection(): Promise<void> {
  const { emitWarning } = process;
  // During the call, Node.js emits a warning that the function is experimental, which is of no use to an operator.
  process.emitWarning = () => undefined;
  try {
    const done = measureMemory({ mode: "summary", execution: "eager" });
    process.emitWarning = emitWarning;
    await done;
  } catch {
    // A later Node.js version may lack the function, or the process is ending.
  } finally {
    process.emitWarning = emitWarning;
  }
}

/**
 * Memory available to this process, in bytes: the smallest of V8's heap limit, the cgroup's limit and the machine's
 * memory.
 */
export function memoryLimitBytes(): number {
  // `constrainedMemory` returns 0 or a huge number if there is no limit.
  const constrained = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.min(getHeapStatistics().heap_size_limit, constrained, totalmem());
}

/**
 * Keeps V8's young generation, in which new objects are allocated, at its current size.
 *
 * V8 doubles it up to 3 × 16 MiB while many new objects survive, as the objects of the first view do, and rarely
 * shrinks it. A backend, which then receives only occasional changes, would keep that memory for its whole life. With a
 * small young generation, the first view causes a few more, but shorter, collections. This is not suitable for programs
 * that allocate all the time, such as the watcher.
 *
 * This function sets the growth factor, which V8 reads at every collection, rather than the size limit, which V8 reads
 * only at the start. A later V8 without this flag ignores it with a warning.
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
