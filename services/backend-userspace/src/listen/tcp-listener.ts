import { createServer, type Server, type Socket } from "node:net";
import { addressAndPort } from "@kpng/model/address.ts";
import type { Balancer } from "../balance/balancer.ts";
import { Connection, type RelayContext } from "../relay/connection.ts";
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
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) =>
      this.#accept(client),
    );
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
    // E.g. too many open files: the connection is lost, and the next one may be accepted.
    server.on("error", () => served.balancer.traffic.end("limit"));
    return listener;
  }

  /** Accepts no more connections; open ones go on. Resolves when they have ended. */
  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #accept(client: Socket): void {
    const { gate, balancer } = this.#served;
    const { limit, accessLog } = this.#context;
    const { plan } = balancer.settings;
    const { traffic } = balancer;
    const needsAddress = gate.needsAddress || plan.affinitySeconds !== undefined || accessLog !== undefined;
    const clientAddress = needsAddress ? client.remoteAddress : "";
    traffic.total++;
    const refuse = (end: ConnectionEnd): void => this.#refuse(client, clientAddress ?? "", end);
    // Without an address, the client has reset the connection before it was accepted.
    const set = clientAddress === undefined ? "client-reset" : gate.admit(clientAddress);
    if (set !== "cluster" && set !== "local") refuse(set);
    else if (!limit.tryTake(traffic)) refuse("limit");
    else {
      const from = { client, clientAddress: clientAddress ?? "" };
      new Connection({ ...from, balancer, set, frontend: gate.frontend }, this.#context);
    }
  }

  #refuse(client: Socket, clientAddress: string, end: ConnectionEnd): void {
    const { plan } = this.#served.balancer.settings;
    this.#served.balancer.traffic.end(end);
    client.on("error", () => undefined);
    this.#context.accessLog?.write({
      service: plan.name,
      protocol: "TCP",
      client: clientAddress === "" ? "" : addressAndPort(clientAddress, client.remotePort ?? 0),
      endpoint: "",
      end,
      durationMs: 0,
      bytesFromClient: 0,
      bytesToClient: 0,
    });
    client.resetAndDestroy();
  }
}
