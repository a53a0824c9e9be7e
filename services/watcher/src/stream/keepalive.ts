import type { ServerHttp2Session } from "node:http2";

export interface KeepaliveOptions {
  /** Time between pings, in milliseconds. Default 30 000; gRPC's `keepalive_time_ms`. */
  readonly intervalMs?: number | undefined;
  /** Longest time to wait for an answer, in milliseconds. Default 20 000; gRPC's `keepalive_timeout_ms`. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Ends a session whose peer no longer answers pings: a node that lost its power never closes its connection, and its
 * subscription would stay for ever.
 */
export function keepAlive(session: ServerHttp2Session, options: KeepaliveOptions = {}): void {
  const { intervalMs = 30_000, timeoutMs = 20_000 } = options;
  const interval = setInterval(() => {
    if (session.destroyed) return;
    const timeout = setTimeout(() => session.destroy(), timeoutMs);
    // An outstanding ping of a peer that is busy reading is answered late, not never: one at a time is enough.
    if (!session.ping(() => clearTimeout(timeout))) clearTimeout(timeout);
  }, intervalMs);
  interval.unref();
  session.once("close", () => clearInterval(interval));
}
