import { createServer, type Server, type Socket } from "node:net";
import type { Balancer } from "../balance/balancer.ts";
import { type Admitted, Connection, type RelayContext } from "../relay/connection.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { Gate } from "./gate.ts";

/** Connections that may wait to be accepted; the kernel's own limit (net.core.somaxconn) may be lower. */
const backlog = 4_096;

/** The frontend that a listener serves. */
export interface ServedPort {
  readonly gate: Gate;
  readonly balancer: Balancer;
}

/**
 * Accepts TCP connections at one address and port, and begins a {@link Connection} for each. A client that the gate or
 * a limit refuses is reset, because a process can refuse only what it has accepted.
 */
export class TcpListener {
  readonly #server: Server;
  readonly #served: ServedPort;
  readonly #context: RelayContext;

  private constructor(served: ServedPort, context: RelayContext) {
    this.#served = served;
    this.#context = context;
    // A client is not read until its endpoint is connected.
    const options = { allowHalfOpen: true, pauseOnConnect: true, noDelay: true };
    this.#server = createServer(options, (client) => this.#accept(client));
  }

  /** Listens at an address. Rejects with the system's error, e.g. EADDRINUSE. */
  static async open(
    served: ServedPort,
    place: { readonly address: string; readonly port: number },
    context: RelayContext,
  ): Promise<TcpListener> {
    const listener = new TcpListener(served, context);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const server = listener.#server;
    server.once("error", reject);
    server.listen({ host: place.address, port: place.port, backlog, ipv6Only: true }, resolve);
    await promise;
    server.removeListener("error", reject);
    // A connection could not be accepted, e.g. because of too many open files: it is lost, and the next may succeed.
    server.on("error", () => served.balancer.traffic.end("limit"));
    return listener;
  }

  /** Accepts no more connections; open ones go on. Resolves when they have ended. */
  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #accept(client: Socket): void {
    const { traffic } = this.#served.balancer;
    traffic.total++;
    const admitted = this.#admit(client);
    if (typeof admitted !== "string") {
      new Connection(client, admitted, this.#context);
      return;
    }
    traffic.end(admitted);
    client.on("error", () => undefined);
    client.resetAndDestroy();
  }

  /** Decides about a client; returns the reason if it is refused. */
  #admit(client: Socket): Admitted | ConnectionEnd {
    const { gate, balancer } = this.#served;
    // There is none if the client has reset the connection already.
    const address = client.remoteAddress;
    if (address === undefined) return "client-reset";
    const set = gate.admit(address);
    if (set !== "cluster" && set !== "local") return set;
    return this.#context.limit.tryTake(balancer.traffic, address) ? { address, balancer, set } : "limit";
  }
}
