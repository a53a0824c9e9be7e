import type { Socket } from "node:net";

/** Response header with which a watcher says how often it pings its clients, in milliseconds. */
export const pingHeader = "kpng-ping-ms";

/** How many pings may be missing before a peer counts as gone. */
const missingPings = 3;

/** How often the sockets are looked at between two pings. */
const looksPerPing = 2;

/**
 * Ends connections to a peer that said how often it pings and from which nothing comes any more.
 *
 * Nothing else finds out in time about a machine that lost its power after we have sent something: the kernel's probes
 * begin only when all that was sent is acknowledged, and until then it repeats it for a quarter of an hour.
 *
 * Looks are counted, not time: after an event loop that was held up, the sockets are read before the next look.
 */
export class SilenceLimit {
  /** By socket: what it had read when it was looked at, and how many looks ago that was first seen. */
  readonly #sockets = new Map<Socket, { bytesRead: number; looks: number }>();
  #pingMs: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  watch<S extends Socket>(socket: S): S {
    this.#sockets.set(socket, { bytesRead: 0, looks: 0 });
    this.#start();
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#stop();
    });
    return socket;
  }

  /** What the peer says of its pings; null if it says nothing. */
  expect(header: string | null): void {
    const pingMs = header === null ? undefined : Number(header);
    if (pingMs === this.#pingMs || (pingMs !== undefined && !(pingMs >= 1 && pingMs <= 3_600_000))) return;
    this.#stop();
    this.#pingMs = pingMs;
    this.#start();
  }

  #start(): void {
    if (this.#pingMs === undefined || this.#timer !== undefined || this.#sockets.size === 0) return;
    this.#timer = setInterval(() => this.#look(), this.#pingMs / looksPerPing).unref();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #look(): void {
    for (const [socket, seen] of this.#sockets) {
      if (socket.bytesRead !== seen.bytesRead) {
        seen.bytesRead = socket.bytesRead;
        seen.looks = 0;
        continue;
      }
      seen.looks++;
      if (seen.looks <= missingPings * looksPerPing) continue;
      socket.destroy(new Error(`nothing came for ${missingPings} times the ${this.#pingMs} ms between two pings`));
    }
  }
}
