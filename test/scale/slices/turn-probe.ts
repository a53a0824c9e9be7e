import { monitorEventLoopDelay, PerformanceObserver } from "node:perf_hooks";

/**
 * Measures the turns of the event loop of the process that loads it with `node --import`. The bench `slices` loads it
 * into a watcher, whose own code contains no measurement.
 *
 * A turn is the time between two calls of an immediate that repeats itself, so the loop never sleeps. The own work of a
 * turn is the smaller of its CPU time on the main thread and its duration without garbage collection: the machine is
 * shared, and a turn in which the thread waited for a core is not a long slice. It may contain several pieces of work,
 * so it is an upper bound of the longest synchronous slice.
 *
 * The parent process sends the message "mark" at the end of each phase and receives {@link PhaseTurns}. With "collect",
 * the whole heap is collected before: what remains is in use. That needs `--expose-gc`.
 */
export interface PhaseTurns {
  /** Own work of the longest turns, in milliseconds, longest first; at most {@link keptTurns}. */
  readonly longestMs: readonly number[];
  /** Longest pause for garbage collection, and the sum of all, in milliseconds. */
  readonly gcMaxMs: number;
  readonly gcTotalMs: number;
  /** 99.9th percentile of the delay of a timer, in milliseconds. */
  readonly delayP999Ms: number;
  readonly rssBytes: number;
  /** Objects in V8's heap that are in use or not collected yet, and the size of the heap. */
  readonly heapUsedBytes: number;
  readonly heapTotalBytes: number;
  /** Memory of buffers outside of the heap. */
  readonly buffersBytes: number;
}

interface Turn {
  readonly startMs: number;
  readonly endMs: number;
  readonly cpuMs: number;
}

const keptTurns = 5;

/** Shorter turns are not recorded, in milliseconds. */
const minTurnMs = 5;

let turns: Turn[] = [];
let pauses: { readonly startMs: number; readonly endMs: number }[] = [];

const collector = new PerformanceObserver((list) => {
  for (const { startTime, duration } of list.getEntries()) {
    pauses.push({ startMs: startTime, endMs: startTime + duration });
  }
});
collector.observe({ entryTypes: ["gc"] });

const delays = monitorEventLoopDelay({ resolution: 1 });
delays.enable();

const cpuMsNow = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

let [startMs, startCpuMs] = [performance.now(), cpuMsNow()];

function turn(): void {
  const endMs = performance.now();
  if (endMs - startMs >= minTurnMs) turns.push({ startMs, endMs, cpuMs: cpuMsNow() - startCpuMs });
  [startMs, startCpuMs] = [performance.now(), cpuMsNow()];
  setImmediate(turn);
}

setImmediate(turn);

function ownMs({ startMs, endMs, cpuMs }: Turn): number {
  let pausedMs = 0;
  for (const pause of pauses) {
    pausedMs += Math.max(0, Math.min(endMs, pause.endMs) - Math.max(startMs, pause.startMs));
  }
  return Math.min(cpuMs, endMs - startMs - pausedMs);
}

function take(): PhaseTurns {
  const longestMs = turns
    .map(ownMs)
    .sort((a, b) => b - a)
    .slice(0, keptTurns);
  const durations = pauses.map((pause) => pause.endMs - pause.startMs);
  const { rss, heapUsed, heapTotal, external } = process.memoryUsage();
  const phase = {
    longestMs,
    gcMaxMs: Math.max(0, ...durations),
    gcTotalMs: durations.reduce((sum, ms) => sum + ms, 0),
    delayP999Ms: delays.percentile(99.9) / 1e6,
    rssBytes: rss,
    heapUsedBytes: heapUsed,
    heapTotalBytes: heapTotal,
    buffersBytes: external,
  };
  turns = [];
  pauses = [];
  delays.reset();
  return phase;
}

process.on("message", (message) => {
  if (message === "collect") for (let count = 0; count < 3; count += 1) gc?.();
  // After the entries of the last collections have been delivered.
  setTimeout(() => process.send?.(take()), 20);
});
