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
  let timeout: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    // A peer that is busy reading answers late, not never: one ping at a time is enough.
    if (session.destroyed || timeout !== undefined) return;
    timeout = setTimeout(() => session.destroy(), timeoutMs).unref();
    // A ping that cannot be sent or is given up is no answer: a session that is closing may wait for its streams for ever.
    session.ping((error) => {
      if (error !== null) return;
      clearTimeout(timeout);
      timeout = undefined;
    });
  }, intervalMs);
  interval.unref();
  session.once("close", () => {
    clearInterval(interval);
    clearTimeout(timeout);
  });
}
