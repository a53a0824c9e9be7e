import type { Clock } from "@kpng/process/clock.ts";
import type { KeepaliveOptions } from "./keepalive.ts";

/** Limits for the connections of clients. The options of `serveTask` include them. */
export interface ConnectionLimits {
  readonly keepalive?: KeepaliveOptions | undefined;
  /** Longest time until a new connection has shown its protocol, in milliseconds. Default 10 000. */
  readonly firstBytesMs?: number | undefined;
  /**
   * Longest time without a call that has sent a request, in milliseconds; at most twice as long passes. Default 90 000,
   * which is longer than a client waits that was told when to retry.
   */
  readonly idleMs?: number | undefined;
  /**
   * Age at which a client is asked to reconnect, in milliseconds, varied by up to 10 % per connection. 0 is never.
   * Default 1 800 000.
   */
  readonly maxAgeMs?: number | undefined;
  /** Shortest time between two connections that end because of their age, in milliseconds. Default 1 000. */
  readonly agePaceMs?: number | undefined;
  /**
   * Longest time for draining connections when the watcher stops, in milliseconds. 0 closes them at once. Default 10
   * 000.
   */
  readonly drainMs?: number | undefined;
  /**
   * Clock of the drain. Unlike {@link LoopClock}, it also advances while the event loop is blocked. Default real time.
   */
  readonly drainClock?: Clock | undefined;
}
