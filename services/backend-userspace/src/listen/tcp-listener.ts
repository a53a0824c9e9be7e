import { createServer, type Server, type Socket } from "node:net";
import { addressAndPort } from "@kpng/model/address.ts";
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
 *
 * `ServedFrontend` opens one for each place of a TCP frontend. Separate from `Connection`, which lives longer: a closed
 * listener's connections go on.
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

  /** Decides about a client; returns the reason if it is refused. Without an address, the client has gone already. */
  #admit(address: string | undefined, port: number): Admitted | ConnectionEnd {
    const { gate, balancer } = this.#served;
    const { traffic } = balancer;
    traffic.total++;
    const set = address === undefined ? "client-reset" : gate.admit(address);
    if (set !== "cluster" && set !== "local") return this.#refuse(address, port, set);
    if (!this.#context.limit.tryTake(traffic)) return this.#refuse(address, port, "limit");
    return { address: address ?? "", port, balancer, set };
  }

  #accept(client: Socket): void {
    const { gate, balancer } = this.#served;
    const { plan } = balancer.settings;
    const needsAddress =
      gate.needsAddress || plan.affinitySeconds !== undefined || this.#context.accessLog !== undefined;
    const admitted = needsAddress ? this.#admit(client.remoteAddress, client.remotePort ?? 0) : this.#admit("", 0);
    if (typeof admitted !== "string") {
      new Connection(client, admitted, this.#context);
      return;
    }
    client.on("error", () => undefined);
    client.resetAndDestroy();
  }

  #refuse(address: string | undefined, port: number, end: ConnectionEnd): ConnectionEnd {
    const { traffic, settings } = this.#served.balancer;
    traffic.end(end);
    this.#context.accessLog?.write({
      service: settings.plan.name,
      protocol: "TCP",
      client: address === undefined ? "" : addressAndPort(address, port),
      endpoint: "",
      end,
      durationMs: 0,
      bytesFromClient: 0,
      bytesToClient: 0,
    });
    return end;
  }
}
