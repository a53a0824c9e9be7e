import type { Socket } from "node:net";

/**
 * Response header of a watcher: its interval between two pings of a client, in milliseconds. Clients of a watcher read
 * it to detect a dead connection; see {@link SilenceLimit}.
 */
export const pingHeader = "kpng-ping-ms";

/** Number of missing pings after which a connection is closed. */
const missingPings = 3;

/** Number of checks of the sockets per ping interval. */
const checksPerPing = 2;

/**
 * Closes connections on which the announced pings of the peer no longer arrive.
 *
 * TCP keepalive alone is too slow when the peer's machine lost power while sent data was not acknowledged yet: the
 * kernel then retransmits for a quarter of an hour before its keepalive probes start.
 *
 * The limit counts checks, not time: after a pause of the event loop, the sockets are read before the next check.
 *
 * `dial` creates one for each transport and passes its sockets to it. Separate from `dial`, because it knows only
 * sockets. The watcher detects dead clients by `keepAlive` instead.
 */
export class SilenceLimit {
  /** For each socket, the bytes read at the last check, and the number of checks since that value last changed. */
  readonly #sockets = new Map<Socket, { bytesRead: number; unchangedChecks: number }>();
  #pingMs: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Watches a socket until it closes; returns it. */
  watch<S extends Socket>(socket: S): S {
    this.#sockets.set(socket, { bytesRead: 0, unchangedChecks: 0 });
    this.#start();
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#stop();
    });
    return socket;
  }

  /** Takes the value of the peer's {@link pingHeader}: null disables the limit, an invalid value is ignored. */
  expect(header: string | null): void {
    const pingMs = header === null ? undefined : Number(header);
    if (pingMs === this.#pingMs || (pingMs !== undefined && !(pingMs >= 1 && pingMs <= 3_600_000))) return;
    this.#stop();
    this.#pingMs = pingMs;
    this.#start();
  }

  #start(): void {
    if (this.#pingMs === undefined || this.#timer !== undefined || this.#sockets.size === 0) return;
    this.#timer = setInterval(() => this.#check(), this.#pingMs / checksPerPing).unref();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #check(): void {
    for (const [socket, seen] of this.#sockets) {
      if (socket.bytesRead !== seen.bytesRead) {
        seen.bytesRead = socket.bytesRead;
        seen.unchangedChecks = 0;
        continue;
      }
      seen.unchangedChecks++;
      if (seen.unchangedChecks <= missingPings * checksPerPing) continue;
      socket.destroy(new Error(`the peer was silent for ${missingPings} ping intervals of ${this.#pingMs} ms`));
    }
  }
}
