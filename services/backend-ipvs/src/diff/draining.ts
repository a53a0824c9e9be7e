import { isDrainable, parseServer, type ServerId, serverOfReal } from "../render/kernel-objects.ts";
import type { ObjectId } from "./service-objects.ts";

/** The shortest and the longest time between two readings of the connections, in milliseconds. */
const [shortestMs, longestMs] = [1_000, 15_000];

/**
 * Real servers that no Service needs any more and that still have connections. They keep weight 0, so they get no new
 * connections, and are deleted when their last connection has ended.
 *
 * A restart finds the same real servers in the kernel, so nothing is stored. No I/O; times are parameters.
 */
export class Draining {
  readonly #sinceMs = new Map<string, number>();
  readonly #done = new Set<string>();

  get size(): number {
    return this.#sinceMs.size;
  }

  /** Returns whether an unneeded real server must stay for now. The first call starts its draining. */
  keeps(real: string, nowMs: number): boolean {
    if (this.#done.has(real) || !isDrainable(serverOfReal(real))) return false;
    if (!this.#sinceMs.has(real)) this.#sinceMs.set(real, nowMs);
    return true;
  }

  /** Forgets a real server because a Service needs it again or because it has been deleted. */
  forget(real: string): void {
    this.#sinceMs.delete(real);
    this.#done.delete(real);
  }

  forgetUnless(isInstalled: (real: string) => boolean): void {
    for (const real of [...this.#sinceMs.keys(), ...this.#done]) if (!isInstalled(real)) this.forget(real);
  }

  /**
   * Returns the real servers that may be deleted now. `connections` contains the number of connections to each real
   * server in the kernel, including closing connections. A real server that it does not contain stays, because the
   * kernel may have skipped that real server.
   */
  finish(connections: ReadonlyMap<string, number>): readonly string[] {
    const finished = [...this.#sinceMs.keys()].filter((real) => connections.get(real) === 0);
    for (const real of finished) {
      this.#sinceMs.delete(real);
      this.#done.add(real);
    }
    return finished;
  }

  /** Virtual servers that must stay because of their draining real servers. */
  get servers(): ReadonlySet<ServerId> {
    return new Set([...this.#sinceMs.keys()].map(serverOfReal));
  }

  /**
   * Returns the time of the next reading of the connections; undefined if nothing is draining. The first reading comes
   * soon after a removal, because most real servers have no connections. Later readings are rarer, because the kernel
   * counts a closed connection for another two minutes.
   */
  nextLookMs(nowMs: number): number | undefined {
    if (this.#sinceMs.size === 0) return undefined;
    let lastMs = 0;
    for (const sinceMs of this.#sinceMs.values()) lastMs = Math.max(lastMs, sinceMs);
    return nowMs + Math.min(Math.max((nowMs - lastMs) / 2, shortestMs), longestMs);
  }
}

/** Returns the objects that must stay as long as a virtual server. */
export function companionsOf(server: ServerId): readonly ObjectId[] {
  const parts = parseServer(server);
  if (parts === undefined) return [];
  if (parts.kind === "mark") return [["MARKS", parts.element]];
  const { element, address } = parts;
  return [
    ["SERVERS", element],
    ["ADDRESSES", address],
    ["address", address],
  ];
}
