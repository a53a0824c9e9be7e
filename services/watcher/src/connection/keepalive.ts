import type { ServerHttp2Session } from "node:http2";
import type { LoopClock } from "./loop-clock.ts";

/**
 * Calls `onSilent` when the client of a session no longer answers pings. A node that lost its power never closes its
 * connection, and its subscription would last indefinitely. `Connections` calls it for each HTTP/2 session.
 *
 * A client that sends anything counts as alive: on a slow link, the reply may be queued for minutes behind other data.
 *
 * Separate from `Connections`, which ends connections for all other reasons: only HTTP/2 has pings.
 */
export function keepAlive(
  session: ServerHttp2Session,
  clock: LoopClock,
  onSilent: () => void,
  options: KeepaliveOptions = {},
): void {
  const { intervalMs = standardPingMs, timeoutMs = 20_000 } = options;
  const { socket } = session;
  let cancel: () => void = () => undefined;
  const wait = (ms = intervalMs): void => {
    cancel = clock.after(ms, ping);
  };
  const awaitReply = (bytesRead: number): void => {
    cancel = clock.after(timeoutMs, () => {
      if (session.destroyed) return;
      if (socket.bytesRead === bytesRead) onSilent();
      else awaitReply(socket.bytesRead);
    });
  };
  const ping = (): void => {
    if (session.destroyed) return;
    awaitReply(socket.bytesRead);
    // An error is not a reply: a closing session fails its pings, but may wait for its streams indefinitely.
    session.ping((error) => {
      if (error !== null || session.destroyed) return;
      cancel();
      wait();
    });
  };
  // A random first delay, so that thousands of clients that connected in the same second are not pinged together.
  wait(intervalMs * (0.5 + Math.random() / 2));
  session.once("close", () => cancel());
}

/** Default time between pings, in milliseconds. */
export const standardPingMs = 30_000;

/** When an HTTP/2 connection counts as dead. */
export interface KeepaliveOptions {
  /** Time between pings, in milliseconds. Default 30 000; gRPC's `keepalive_time_ms`. */
  readonly intervalMs?: number | undefined;
  /** Longest wait for the reply to a ping, in milliseconds. Default 20 000; gRPC's `keepalive_timeout_ms`. */
  readonly timeoutMs?: number | undefined;
}
