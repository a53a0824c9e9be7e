/** How a view came here: what is needed to say how long its changes took. */
export interface Arrival {
  /** When the first marker was received of those that were merged, in milliseconds since 1970, with fractions. */
  readonly receivedAtMs: number;
  /** When the watcher's store had the newest of them, by its clock, likewise; 0 if it does not say. */
  readonly storedAtMs: number;
  /** When the objects changed that they tell of, in milliseconds since 1970; at most {@link maxTriggers}, the newest. */
  readonly triggeredAtMs: readonly number[];
  /** Traces of their changes as W3C traceparent, newest first; at most {@link maxTraces}. */
  readonly traceparents: readonly string[];
  /** The share of the nodes that are to record their part of each trace, from 0; all at 1 and above. */
  readonly tracedNodes: number;
}

const maxTriggers = 100;
const maxTraces = 32;

/** What both brought, as one. */
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
