import type { ServerHttp2Session } from "node:http2";
import type { LoopClock } from "./loop-clock.ts";

/** Time between pings, in milliseconds. */
export const standardPingMs = 30_000;

export interface KeepaliveOptions {
  /** Time between pings, in milliseconds. Default 30 000; gRPC's `keepalive_time_ms`. */
  readonly intervalMs?: number | undefined;
  /** Longest time to wait for an answer, in milliseconds. Default 20 000; gRPC's `keepalive_timeout_ms`. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Calls `onSilent` for a session whose peer no longer answers pings: a node that lost its power never closes its
 * connection, and its subscription would stay for ever.
 *
 * Whoever sends anything at all is alive: behind a slow line the answer may wait for minutes after what is being read.
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
  const judge = (bytesRead: number): void => {
    cancel = clock.after(timeoutMs, () => {
      if (session.destroyed) return;
      if (socket.bytesRead === bytesRead) onSilent();
      else judge(socket.bytesRead);
    });
  };
  const ping = (): void => {
    if (session.destroyed) return;
    judge(socket.bytesRead);
    // A ping that cannot be sent or is given up is no answer: a session that is closing may wait for its streams for ever.
    session.ping((error) => {
      if (error !== null || session.destroyed) return;
      cancel();
      wait();
    });
  };
  // Thousands that came in the same second are not pinged in the same moment.
  wait(intervalMs * (0.5 + Math.random() / 2));
  session.once("close", () => cancel());
}
