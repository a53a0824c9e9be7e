/**
 * When the changes of a view were written, stored and received. Metrics, traces and acknowledgements measure from these
 * times how long a change took. `watchBatches` fills it in. The types of this folder have files of their own, because
 * several folders of the package use them.
 */
export interface Arrival {
  /** Receipt of the first of the merged sync markers, in milliseconds since 1970, with fractions. */
  readonly receivedAtMs: number;
  /** When the watcher's store had the newest change, by its clock, in the same unit; 0 if the watcher does not say. */
  readonly storedAtMs: number;
  /** When the changed objects were written, in milliseconds since 1970; the newest {@link maxTriggers}. */
  readonly triggeredAtMs: readonly number[];
  /** Traces of the changes as W3C traceparent, newest first; at most {@link maxTraces}. */
  readonly traceparents: readonly string[];
  /** Share of the nodes that record their part of each trace, from 0; all nodes at 1 and above. */
  readonly tracedNodes: number;
}

const maxTriggers = 100;
const maxTraces = 32;

/** Merges two arrivals whose updates are applied together. `PendingUpdate` calls it when it merges updates. */
export function mergeArrivals(older: Arrival | undefined, newer: Arrival | undefined): Arrival | undefined {
  if (older === undefined || newer === undefined) return newer ?? older;
  return {
    receivedAtMs: older.receivedAtMs,
    storedAtMs: newer.storedAtMs,
    triggeredAtMs: [...newer.triggeredAtMs, ...older.triggeredAtMs].slice(0, maxTriggers),
    traceparents: [...new Set([...newer.traceparents, ...older.traceparents])].slice(0, maxTraces),
    tracedNodes: Math.max(older.tracedNodes, newer.tracedNodes),
  };
}
