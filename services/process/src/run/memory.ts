import { totalmem } from "node:os";
import { performance } from "node:perf_hooks";
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from "node:v8";
import { measureMemory } from "node:vm";

/**
 * Collects V8's garbage once after each load, from now on for the life of the process.
 *
 * V8 collects only when something allocates. A watcher that was busy and is now idle would keep the garbage of its last
 * load, up to half of its heap (`growOldGenerationByHalf`), and every free page. Single changes leave little garbage.
 *
 * *Cost:* a marking of the heap in steps beside other work, and one pause at its end: 0.1 s for 140 MB; at most every
 * 15 s, and only if there is enough to free. V8 returns the free pages about 8 s later.
 */
export function collectWhenIdle(): void {
  let live = memoryInUse();
  let last = performance.eventLoopUtilization();
  let wasBusy = true;
  let savingChecks = 0;
  setInterval(() => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    wasBusy ||= utilization >= busyShare;
    const bytes = memoryInUse();
    live = Math.min(live, bytes);
    if (savingChecks > 0) {
      savingChecks -= 1;
      if (savingChecks === 0) setFlagsFromString("--no-memory-saver-mode");
      return;
    }
    if (!isWorthCollecting({ wasBusy, utilization, bytes, liveBytes: live })) return;
    wasBusy = false;
    savingChecks = savedChecks;
    // In this mode V8 follows a collection with one that returns free pages; otherwise it may put that off while other
    // processes want the cores, which it takes for work of this one. Not for longer: V8 then prefers less memory to
    // speed. A later V8 without the flag ignores it.
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
  /** Share of the last seconds in which the event loop was busy. */
  readonly utilization: number;
  /** Memory in use, garbage and free pages included. */
  readonly bytes: number;
  /** The least memory in use since the last collection, or since the start. */
  readonly liveBytes: number;
}

/** True if the process is idle after a load, and holds a quarter more than before it, and at least 8 MiB. Pure. */
export function isWorthCollecting({ wasBusy, utilization, bytes, liveBytes }: IdleState): boolean {
  return wasBusy && utilization < idleShare && bytes - liveBytes > Math.max(minGrowthBytes, liveBytes / 4);
}

/** Time between two checks, in milliseconds. */
const checkMs = 3_000;

/** Number of checks for which V8 saves memory after a collection: it returns free pages after 8 to 12 s. */
const savedChecks = 5;

/** A change to 1 000 nodes takes 4 % of a second. So one each second is busy enough: a collection would delay some. */
const idleShare = 0.02;

/**
 * A load keeps the event loop busy for at least this share of some seconds. Single changes stay below it: each leaves a
 * few kilobytes, and a collection for them would cost more than they do.
 */
const busyShare = 0.1;

const minGrowthBytes = 8 * 1_024 * 1_024;

/**
 * Memory of V8's old generation and the buffers of all objects, in bytes. It includes garbage, and pages that V8 keeps
 * free after a collection of its own. The young generation is left out: V8 collects it by itself, and what it holds
 * depends on when it last did.
 */
function memoryInUse(): number {
  const old = getHeapSpaceStatistics().filter(({ space_name: name }) => !name.startsWith("new_"));
  return old.reduce((sum, { physical_space_size: bytes }) => sum + bytes, getHeapStatistics().external_memory);
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

/**
 * Memory available to this process, in bytes: the smallest of V8's heap limit, the cgroup's limit and the machine's
 * memory.
 */
export function memoryLimitBytes(): number {
  // 0 or a huge number if there is no limit.
  const constrained = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.min(getHeapStatistics().heap_size_limit, constrained, totalmem());
}

/**
 * Keeps V8's young generation, in which new objects are allocated, at its current size.
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
 */
export function growOldGenerationByHalf(): void {
  setFlagsFromString("--heap-growing-percent=50");
}
