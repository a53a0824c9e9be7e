import type { DropArgument, Server, Socket } from "node:net";
import type { Refusals } from "./refusals.ts";

/**
 * Limits the connections over TCP, of all listeners and of each client address. Connections over unix sockets are not
 * limited, so that an operator on the machine can still query the watcher.
 *
 * *Bound:* one counter for each address with an open connection.
 *
 * `serve` attaches it to each listener over TCP; it applies before a client has sent anything.
 */
export class AcceptLimit {
  readonly #max: number;
  readonly #maxPerAddress: number;
  readonly #refusals: Refusals;
  readonly #servers = new Map<Server, number>();
  readonly #byAddress = new Map<string, number>();
  #open = 0;

  /** `maxPerAddress` 0 is no limit. */
  constructor(max: number, maxPerAddress: number, refusals: Refusals) {
    this.#max = max;
    this.#maxPerAddress = maxPerAddress;
    this.#refusals = refusals;
  }

  /** Applies the limits to a server that listens on TCP. */
  attach(server: Server): void {
    this.#servers.set(server, 0);
    this.#share();
    // Prepended, so that it runs before the other handlers of `connection`.
    server.prependListener("connection", (socket: Socket) => this.#accept(server, socket));
    server.on("drop", (data?: DropArgument) => this.#refusals.add("connections", data?.remoteAddress ?? ""));
  }

  #accept(server: Server, socket: Socket): void {
    const { remoteAddress: address = "" } = socket;
    const count = (this.#byAddress.get(address) ?? 0) + 1;
    this.#byAddress.set(address, count);
    this.#add(server, 1);
    socket.once("close", () => {
      this.#add(server, -1);
      const rest = (this.#byAddress.get(address) ?? 1) - 1;
      if (rest === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, rest);
    });
    if (this.#maxPerAddress === 0 || count <= this.#maxPerAddress) return;
    this.#refusals.add("address", address);
    socket.destroy();
  }

  #add(server: Server, change: number): void {
    this.#open += change;
    this.#servers.set(server, (this.#servers.get(server) ?? 0) + change);
    this.#share();
  }

  /**
   * Sets `maxConnections` of each server so that all together accept at most `#max`. Node.js closes further connections
   * right after accept, before anything is allocated for them.
   */
  #share(): void {
    for (const [server, open] of this.#servers) server.maxConnections = open + Math.max(0, this.#max - this.#open);
  }
}
