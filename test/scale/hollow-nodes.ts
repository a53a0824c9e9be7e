import type { MadeChange } from "./batches.ts";
import { answerCalls } from "./calls.ts";
import { type FleetOptions, HollowFleet } from "./hollow-fleet.ts";

/**
 * Load generator: a process with thousands of Watch streams, opened and measured together by its parent process.
 */
let fleet: HollowFleet | undefined;

function opened(): HollowFleet {
  if (fleet === undefined) throw new Error("no stream was opened");
  return fleet;
}

const handlers = {
  open({ options, timeoutMs }: { readonly options: FleetOptions; readonly timeoutMs: number }) {
    fleet = new HollowFleet(options);
    return fleet.open(timeoutMs);
  },

  /** Starts a measurement: clears the log of batches. */
  mark(_: Record<never, never>) {
    opened().log.clear();
    return { receivedBytes: opened().receivedBytes };
  },

  reachedRevision({ revision, timeoutMs }: { readonly revision: number; readonly timeoutMs: number }) {
    return opened().reachedRevision(revision, timeoutMs);
  },

  quiet({ quietMs, timeoutMs }: { readonly quietMs: number; readonly timeoutMs: number }) {
    return opened().quiet(quietMs, timeoutMs);
  },

  /** `sinceRevision` is the revision at the start of the measurement. */
  collect({ changes, sinceRevision }: { readonly changes: readonly MadeChange[]; readonly sinceRevision: number }) {
    const { lost, log, receivedBytes } = opened();
    if (lost !== undefined) throw new Error(`a stream was lost: ${lost}`);
    return { latencies: log.latencies(changes, sinceRevision), receivedBytes };
  },
};

export type HollowNodesHandlers = typeof handlers;

answerCalls(handlers);
