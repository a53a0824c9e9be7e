import { Session } from "node:inspector";
import { monitorEventLoopDelay } from "node:perf_hooks";

/**
 * Measures the turns of the event loop of the process that loads it with `node --import`. The bench `slices` loads it
 * into a watcher, whose own code contains no measurement.
 *
 * A turn is the time between two calls of an immediate that repeats itself, so the loop never sleeps. The own work of a
 * turn is its CPU time on the main thread without that of garbage collection: the machine is shared, and a turn in
 * which the thread waited for a core is not a long slice. It may contain several pieces of work, so it is an upper
 * bound of the longest synchronous slice.
 *
 * Garbage collection comes from V8's trace events. The entries of a PerformanceObserver lack what V8 does in the middle
 * of other work: steps of incremental marking, and sweeping.
 *
 * The parent process sends the message "mark" at the end of each phase and receives {@link PhaseTurns}. With "collect",
 * the whole heap is collected before: what remains is in use. That needs `--expose-gc`.
 */
export interface PhaseTurns {
  /** Own work of the longest turns, in milliseconds, longest first; at most {@link keptTurns}. */
  readonly longestMs: readonly number[];
  /** Longest piece of garbage collection on the main thread, and the sum of all, in milliseconds. */
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
let pauses: Pause[] = [];

/** A piece of garbage collection on the main thread. */
interface Pause {
  readonly startMs: number;
  readonly endMs: number;
  readonly cpuMs: number;
}

/** An event of V8's trace; times in microseconds. `tdur` is CPU time. */
interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
  readonly tdur: number;
}

/** Trace events count from the start of the machine, `performance.now` from the start of the process. */
const originMs = Number(process.hrtime.bigint()) / 1e6 - performance.now();

const session = new Session();
session.connect();
session.on("NodeTracing.dataCollected", ({ params }) => {
  for (const { name, ph, pid, tid, ts, dur, tdur } of params.value as unknown as readonly TraceEvent[]) {
    if (ph !== "X" || tid !== pid || !name.startsWith("V8.GC")) continue;
    const startMs = ts / 1_000 - originMs;
    pauses.push({ startMs, endMs: startMs + dur / 1_000, cpuMs: tdur / 1_000 });
  }
});
const startTrace = (): void =>
  session.post("NodeTracing.start", { traceConfig: { includedCategories: ["disabled-by-default-v8.gc"] } });
startTrace();

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

/** Returns the pauses without those inside others, in order. */
function outermost(all: readonly Pause[]): readonly Pause[] {
  let endMs = 0;
  const sorted = all.toSorted((a, b) => a.startMs - b.startMs || b.endMs - a.endMs);
  return sorted.filter((pause) => {
    const isInside = pause.endMs <= endMs;
    endMs = Math.max(endMs, pause.endMs);
    return !isInside;
  });
}

function take(): PhaseTurns {
  const outer = outermost(pauses);
  const ownMs = ({ startMs, endMs, cpuMs }: Turn): number =>
    outer.filter((one) => one.startMs >= startMs && one.startMs < endMs).reduce((ms, one) => ms - one.cpuMs, cpuMs);
  const longestMs = turns
    .map(ownMs)
    .sort((a, b) => b - a)
    .slice(0, keptTurns);
  const durations = outer.map((pause) => pause.endMs - pause.startMs);
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
  session.once("NodeTracing.tracingComplete", () => {
    const phase = take();
    // Not in the turn that has read the trace, which would belong to the next phase.
    setImmediate(() =>
      setImmediate(() => {
        turns = [];
        startTrace();
        process.send?.(phase);
      }),
    );
  });
  session.post("NodeTracing.stop");
});
