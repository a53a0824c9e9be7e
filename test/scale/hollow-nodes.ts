import type { MadeChange } from "./batch-log.ts";
import { answerCalls } from "./calls.ts";
import { type FleetOptions, HollowFleet, type OpenOptions } from "./hollow-fleet.ts";

/**
 * The load generator: a process of its own with thousands of Watch streams, driven by the process that starts it.
 *
 * A fleet is a number of streams that are opened, dropped and asked together: usually one that reads, and one that
 * stalls.
 */
const fleets = new Map<string, HollowFleet>();

function fleetOf(name: string): HollowFleet {
  const fleet = fleets.get(name);
  if (fleet === undefined) throw new Error(`no fleet "${name}"`);
  return fleet;
}

const handlers = {
  open({ fleet, options, ...open }: { readonly fleet: string; readonly options: FleetOptions } & OpenOptions) {
    const made = new HollowFleet(options);
    fleets.set(fleet, made);
    return made.open(open);
  },

  /** Mass reconnect: drops every connection at once and dials again. */
  storm({ fleet, ...open }: { readonly fleet: string } & OpenOptions) {
    const stormed = fleetOf(fleet);
    stormed.drop();
    return stormed.open(open);
  },

  drop({ fleet }: { readonly fleet: string }) {
    fleetOf(fleet).drop();
    fleets.delete(fleet);
  },

  /** Begins a measurement: forgets the batches noted so far. */
  mark({ fleet }: { readonly fleet: string }) {
    const marked = fleetOf(fleet);
    marked.log.clear();
    return { receivedBytes: marked.receivedBytes, batches: marked.batches };
  },

  reachedRevision({ fleet, revision, timeoutMs }: ReachedRevision) {
    return fleetOf(fleet).reachedRevision(revision, timeoutMs);
  },

  reachedBatches({ fleet, count, timeoutMs }: ReachedBatches) {
    return fleetOf(fleet).reachedBatches(count, timeoutMs);
  },

  quiet({
    fleet,
    quietMs,
    timeoutMs,
  }: {
    readonly fleet: string;
    readonly quietMs: number;
    readonly timeoutMs: number;
  }) {
    return fleetOf(fleet).quiet(quietMs, timeoutMs);
  },

  collect({ fleet, changes, sinceRevision }: Collect) {
    const collected = fleetOf(fleet);
    if (collected.lost !== undefined) throw new Error(`a stream was lost: ${collected.lost}`);
    return {
      latencies: collected.latencies(changes, sinceRevision),
      batches: collected.log.length,
      lastAtMs: collected.log.lastAtMs,
      receivedBytes: collected.receivedBytes,
    };
  },

  digests({ fleet }: { readonly fleet: string }) {
    return fleetOf(fleet).digests();
  },

  /** User and system time so far, in milliseconds. */
  cpu(_: Record<never, never>): number {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
};

interface ReachedRevision {
  readonly fleet: string;
  readonly revision: number;
  readonly timeoutMs: number;
}

interface ReachedBatches {
  readonly fleet: string;
  readonly count: number;
  readonly timeoutMs: number;
}

interface Collect {
  readonly fleet: string;
  readonly changes: readonly MadeChange[];
  /** Revision at which the measurement began. */
  readonly sinceRevision: number;
}

export type HollowNodesHandlers = typeof handlers;

answerCalls(handlers);
