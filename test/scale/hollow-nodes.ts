import type { MadeChange } from "./batches.ts";
import { answerCalls } from "./calls.ts";
import { type FleetOptions, HollowFleet } from "./hollow-fleet.ts";

/**
 * Load generator: a process with thousands of Watch streams, controlled by its parent process.
 *
 * A fleet is a group of streams that are opened, dropped and measured together.
 */
const fleets = new Map<string, HollowFleet>();

function fleetOf(name: string): HollowFleet {
  const fleet = fleets.get(name);
  if (fleet === undefined) throw new Error(`unknown fleet "${name}"`);
  return fleet;
}

const handlers = {
  open({ fleet, options, timeoutMs }: Open) {
    const made = new HollowFleet(options);
    fleets.set(fleet, made);
    return made.open(timeoutMs);
  },

  drop({ fleet }: { readonly fleet: string }) {
    fleetOf(fleet).drop();
    fleets.delete(fleet);
  },

  /** Starts a measurement: clears the log of batches. */
  mark({ fleet }: { readonly fleet: string }) {
    const marked = fleetOf(fleet);
    marked.log.clear();
    return { receivedBytes: marked.receivedBytes };
  },

  reachedRevision({ fleet, revision, timeoutMs }: ReachedRevision) {
    return fleetOf(fleet).reachedRevision(revision, timeoutMs);
  },

  quiet({ fleet, quietMs, timeoutMs }: Quiet) {
    return fleetOf(fleet).quiet(quietMs, timeoutMs);
  },

  collect({ fleet, changes, sinceRevision }: Collect) {
    const collected = fleetOf(fleet);
    if (collected.lost !== undefined) throw new Error(`a stream was lost: ${collected.lost}`);
    return {
      latencies: collected.latencies(changes, sinceRevision),
      receivedBytes: collected.receivedBytes,
    };
  },
};

interface Open {
  readonly fleet: string;
  readonly options: FleetOptions;
  readonly timeoutMs: number;
}

interface Quiet {
  readonly fleet: string;
  readonly quietMs: number;
  readonly timeoutMs: number;
}

interface ReachedRevision {
  readonly fleet: string;
  readonly revision: number;
  readonly timeoutMs: number;
}

interface Collect {
  readonly fleet: string;
  readonly changes: readonly MadeChange[];
  /** Revision at the start of the measurement. */
  readonly sinceRevision: number;
}

export type HollowNodesHandlers = typeof handlers;

answerCalls(handlers);
