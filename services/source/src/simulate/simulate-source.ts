import { type Clock, realClock } from "@kpng/process/clock.ts";
import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { aborted } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { ClusterSink, Source } from "../source.ts";
import { type ChangeKind, randomChanges } from "./random-changes.ts";
import { makeCluster, type SyntheticShape } from "./synthetic.ts";

/** What happens to a simulated cluster again and again, {@link faultEveryMs} after the last time, by name. */
export const clusterFaults = {
  "mass-deletion": "all Services are deleted in one change, and created again 5 s later; changes go on meanwhile",
  older: "the cluster is again as it was at the start, as after the restore of a backup",
} as const;

/** Name of a fault. */
export type ClusterFault = keyof typeof clusterFaults;

/** Interval of faults, in milliseconds. */
const faultEveryMs = 20_000;

/** Time that Services are away in a mass deletion, in milliseconds. */
const deletedForMs = 5_000;

export interface SimulateSourceOptions {
  readonly shape: SyntheticShape;
  /** Default: none. */
  readonly fault?: ClusterFault | undefined;
  /** Changes per second; 0 for none. */
  readonly rate: number;
  /** Returns numbers from 0 up to but not including 1. */
  readonly random: () => number;
  readonly sink: ClusterSink;
  readonly log: Log;
  readonly health: Health;
  readonly clock?: Clock | undefined;
}

const part = "source/simulate";

/** Interval of the log lines about what was changed, in milliseconds. */
const reportEveryMs = 10_000;

/** Minimum time between two revisions, in milliseconds; with a higher rate, a revision has several changes. */
const minIntervalMs = 5;

/**
 * Fills the sink with a synthetic cluster, and then changes it at a constant rate: the same changes in the same order
 * for the same random numbers. This is the source of `kpng simulate`, for trying backends and for benchmarks.
 */
export function simulateSource(options: SimulateSourceOptions): Source {
  return { name: part, run: (signal) => run(options, signal) };
}

const origin = () => ({ source: "simulate", receivedAtMs: wallClockMs() });

async function run(options: SimulateSourceOptions, signal: AbortSignal): Promise<void> {
  const { shape, rate, random, sink, log, health, clock = realClock } = options;
  sink.replace(makeCluster(shape), origin());
  health.setReady(part);
  log.info("cluster simulated", { ...shape });
  const faults = options.fault === undefined ? undefined : repeatFault(options.fault, options, signal);
  const changes = randomChanges(shape, random);
  const startMs = clock.nowMs();
  let count = 0;
  let lostCount = 0;
  let reportedMs = startMs;
  const counts: Record<ChangeKind, number> = { readiness: 0, rollout: 0, deletion: 0, creation: 0 };
  while (rate > 0 && !signal.aborted) {
    await clock.wait(Math.max(minIntervalMs, startMs + ((count + 1) * 1_000) / rate - clock.nowMs()), signal);
    const missed = Math.floor(((clock.nowMs() - startMs) * rate) / 1_000) - count;
    if (signal.aborted || missed <= 0) continue;
    // After a pause, or on a machine that cannot keep the rate, a growing batch would block the process for good.
    const due = Math.min(missed, Math.ceil(rate));
    lostCount += missed - due;
    count += missed - due;
    const batch = Array.from({ length: due }, () => changes.next().value);
    count += due;
    for (const { kind } of batch) counts[kind] += 1;
    sink.apply(
      batch.flatMap((one) => one.changes),
      origin(),
    );
    if (clock.nowMs() - reportedMs < reportEveryMs) continue;
    reportedMs = clock.nowMs();
    log.info("changes simulated", { ...counts, ...(lostCount > 0 ? { lost: lostCount } : {}) });
  }
  await aborted(signal);
  await faults;
}

/** Repeats a fault until `signal` aborts. */
async function repeatFault(fault: ClusterFault, options: SimulateSourceOptions, signal: AbortSignal): Promise<void> {
  const { shape, sink, log, clock = realClock } = options;
  while (!signal.aborted) {
    await clock.wait(faultEveryMs, signal);
    if (signal.aborted) return;
    log.info("fault simulated", { fault });
    if (fault === "mass-deletion") {
      const { nodes } = makeCluster(shape);
      sink.replace({ services: [], slices: [], nodes }, origin());
      await clock.wait(deletedForMs, signal);
    }
    sink.replace(makeCluster(shape), origin());
  }
}
