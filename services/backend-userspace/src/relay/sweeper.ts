import type { Connection } from "./connection.ts";

/** Time limits of connections. */
export interface SweepLimits {
  /** Time without data after which a connection is reset, in milliseconds; 0 for none. */
  readonly idleMs: number;
  /** The same for a connection of which one side has ended its data. */
  readonly halfClosedMs: number;
  /** Time after the removal of an endpoint at which its connections are reset, in milliseconds; 0 for none. */
  readonly drainMs: number;
}

const maxIntervalMs = 30_000;
const minIntervalMs = 50;
/** Idle time after which a peer is asked whether it still exists. */
const keepAliveMs = 120_000;

/**
 * Returns the time between two sweeps: a fifth of the smaller limit, so that limits are exceeded by at most that, from
 * 50 ms to 30 s.
 */
export function sweepIntervalMs({ idleMs, halfClosedMs, drainMs }: SweepLimits): number {
  const smallest = Math.min(...[idleMs, halfClosedMs, drainMs, maxIntervalMs * 5].filter((limit) => limit > 0));
  return Math.max(minIntervalMs, Math.min(maxIntervalMs, smallest / 5));
}

/**
 * Resets connections that reached a time limit. `UserspaceRuntime` calls it every `intervalMs`. Separate from
 * `Connection`, which has no timer of its own: every piece of data would have to restart it, and a periodic look at all
 * costs less.
 */
export function sweep(open: Iterable<Connection>, limits: SweepLimits, intervalMs: number, nowMs: number): void {
  const { idleMs, halfClosedMs, drainMs } = limits;
  const sweepsOf = (limitMs: number): number => (limitMs === 0 ? Infinity : Math.ceil(limitMs / intervalMs));
  const [idleSweeps, halfClosedSweeps] = [sweepsOf(idleMs), sweepsOf(halfClosedMs)];
  for (const connection of open) {
    const count = connection.sweep(keepAliveMs);
    const { removedMs } = connection;
    if (count >= (connection.isHalfClosed ? halfClosedSweeps : idleSweeps)) connection.reset("idle");
    else if (drainMs > 0 && removedMs !== undefined && nowMs - removedMs >= drainMs) connection.reset("drained");
  }
}
