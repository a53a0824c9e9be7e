import type { Clock } from "@kpng/process/clock.ts";
import type { KeepaliveOptions } from "./keepalive.ts";

/**
 * Limits and timing of the connections that clients open to a watcher; tests shorten the times. Separate, because the
 * options of `serveTask`, and so of `kpng SOURCE to-api`, include them, and four classes enforce them: `AcceptLimit`,
 * `Admission` and `RequestMemory` the maximum numbers, and `Connections` the rest.
 */
export interface ConnectionLimits {
  readonly keepalive?: KeepaliveOptions | undefined;
  /** Longest time until a new connection has shown its protocol, in milliseconds. Default 10 000. */
  readonly firstBytesMs?: number | undefined;
  /**
   * Time after which a connection without a running call is closed, in milliseconds; the check may take up to twice as
   * long. A call counts once its request has arrived. Default 90 000: longer than the delay after which a client
   * retries when the watcher is busy.
   */
  readonly idleMs?: number | undefined;
  /**
   * Age at which a client is asked to reconnect, in milliseconds, varied by up to 10 % per connection. 0 is never.
   * Default 1 800 000.
   */
  readonly maxAgeMs?: number | undefined;
  /** Shortest interval between two requests to reconnect because of age, in milliseconds. Default 1 000. */
  readonly ageIntervalMs?: number | undefined;
  /**
   * Longest time for which a client may read nothing while more output waits than its stream buffers, in milliseconds;
   * at most twice as long passes. 0 is no limit. Default 60 000.
   */
  readonly writeTimeoutMs?: number | undefined;
  /**
   * Time that the calls of a connection may take to end after the CA of its certificate was replaced, in milliseconds.
   * Default 10 000.
   */
  readonly oldCaMs?: number | undefined;
  /** Limit for connections over TCP; 0 or undefined for {@link defaultLimits}. */
  readonly maxConnections?: number | undefined;
  /** Limit for connections of one address over TCP. 0 is no limit. Default 0. */
  readonly maxConnectionsPerAddress?: number | undefined;
  /** Limit for calls of nodes in progress over TCP; 0 or undefined for {@link defaultLimits}. See CallClass. */
  readonly maxCalls?: number | undefined;
  /**
   * Limit for the memory of requests that have not been read completely, in bytes. Default {@link defaultLimits}. See
   * RequestMemory.
   */
  readonly maxRequestMemoryBytes?: number | undefined;
  /** Limit for calls of people in progress; 0 or undefined for {@link defaultLimits}. See CallClass. */
  readonly maxQueries?: number | undefined;
  /**
   * Longest time for draining connections when the watcher stops, in milliseconds. 0 closes them at once.
   * Default 10 000.
   */
  readonly drainMs?: number | undefined;
  /** Clock of the drain. Unlike `LoopClock`, it also advances while the event loop is blocked. Default real time. */
  readonly drainClock?: Clock | undefined;
}
