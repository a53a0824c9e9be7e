import { createServer, type Server, type Socket } from "node:net";
import { addressAndPort } from "@kpng/model/address.ts";
import type { Balancer } from "../balance/balancer.ts";
import { Connection, listenBacklog, type RelayContext, relayServerOptions } from "../relay/connection.ts";
import { type PassageContext, PlannedPassage } from "../relay/planned-passage.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { SharedListener, Workers } from "../workers/workers.ts";
import type { Gate } from "./gate.ts";

/** State that all TCP listeners of the process share. */
export interface TcpContext extends RelayContext, PassageContext {
  /** Processes that accept from the same sockets; undefined without `--workers`. */
  readonly workers: Workers | undefined;
}

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
export class TcpListener implements SharedListener {
  readonly server: Server;
  readonly #served: ServedPort;
  readonly #context: TcpContext;
  /** Resolves when no worker has the socket, nor connections of it. */
  #unshare: (() => Promise<void>) | undefined;

  private constructor(served: ServedPort, context: TcpContext) {
    this.#served = served;
    this.#context = context;
    this.server = createServer(relayServerOptions, (client) => this.#accept(client));
  }

  /** Listens at an address. Rejects with the system's error, e.g. EADDRINUSE. */
  static async open(
    served: ServedPort,
    place: { readonly address: string; readonly port: number },
    context: TcpContext,
  ): Promise<TcpListener> {
    const listener = new TcpListener(served, context);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const { server } = listener;
    server.once("error", reject);
    server.listen({ host: place.address, port: place.port, backlog: listenBacklog, ipv6Only: true }, resolve);
    await promise;
    server.removeListener("error", reject);
    server.on("error", () => listener.failed());
    listener.#unshare = context.workers?.share(listener);
    return listener;
  }

  /** Accepts no more connections; open ones go on. Resolves when they have ended. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    await Promise.all([closed, this.#unshare?.()]);
  }

  admit(address: string | undefined, port: number): PlannedPassage | ConnectionEnd {
    const { gate, balancer } = this.#served;
    const { traffic } = balancer;
    traffic.total++;
    const set = address === undefined ? "client-reset" : gate.admit(address);
    if (set !== "cluster" && set !== "local") return this.#refuse(address, port, set);
    if (!this.#context.limit.tryTake(traffic)) return this.#refuse(address, port, "limit");
    return new PlannedPassage({ address: address ?? "", port, balancer, set, frontend: gate.frontend }, this.#context);
  }

  failed(): void {
    this.#served.balancer.traffic.end("limit");
  }

  #accept(client: Socket): void {
    const { gate, balancer } = this.#served;
    const { plan } = balancer.settings;
    const needsAddress =
      gate.needsAddress || plan.affinitySeconds !== undefined || this.#context.accessLog !== undefined;
    const passage = needsAddress ? this.admit(client.remoteAddress, client.remotePort ?? 0) : this.admit("", 0);
    if (typeof passage !== "string") {
      new Connection(client, passage, this.#context);
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
