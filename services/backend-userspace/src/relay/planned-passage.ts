import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointSetName } from "@kpng/service-plan/service-plan.ts";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { AccessLog } from "../traffic/access-log.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { TrafficLimit } from "../traffic/traffic-limits.ts";
import type { Destination, Passage } from "./passage.ts";

/** State that all passages share. */
export interface PassageContext {
  readonly limit: TrafficLimit;
  /** Number of attempts to connect, at least 1. */
  readonly connectAttempts: number;
  readonly accessLog: AccessLog | undefined;
}

/** A client that was let through, and where it may go. */
export interface Admitted {
  /** "" unless affinity or an option needs it. */
  readonly address: string;
  readonly port: number;
  readonly balancer: Balancer;
  readonly set: EndpointSetName;
  /** Where the client connected to, for the PROXY protocol; the socket's own address if undefined. */
  readonly frontend: { readonly address: string | undefined; readonly port: number };
}

/**
 * A passage in the process with the plan: chooses endpoints, counts, and writes the access log. `TcpListener` makes one
 * for each client that it lets through, whichever process accepted the client. Separate from `Connection`, which may be
 * in a worker.
 */
export class PlannedPassage implements Passage {
  readonly #admitted: Admitted;
  readonly #context: PassageContext;
  readonly #startMs = performance.now();
  /** The endpoint that was chosen last. */
  #endpoint: BalancedEndpoint | undefined;
  /** The endpoint that counts this connection as open. */
  #open: BalancedEndpoint | undefined;
  #tried: BalancedEndpoint[] = [];
  #bytesFromClient = 0;
  #bytesToClient = 0;

  /** The place in `context.limit` is taken already. */
  constructor(admitted: Admitted, context: PassageContext) {
    this.#admitted = admitted;
    this.#context = context;
  }

  get removedMs(): number | undefined {
    return this.#endpoint?.removedMs;
  }

  next(use: (to: Destination | ConnectionEnd) => void): void {
    use(this.#choose());
  }

  carried(fromClient: number, toClient: number): void {
    const { traffic } = this.#admitted.balancer;
    this.#bytesFromClient += fromClient;
    this.#bytesToClient += toClient;
    traffic.bytesFromClients += fromClient;
    traffic.bytesToClients += toClient;
  }

  leave(): void {
    if (this.#open !== undefined) this.#open.open--;
    this.#open = undefined;
  }

  end(end: ConnectionEnd): void {
    const { address, port, balancer } = this.#admitted;
    const { limit, accessLog } = this.#context;
    const { traffic, settings } = balancer;
    this.leave();
    limit.release(traffic);
    traffic.end(end);
    accessLog?.write({
      service: settings.plan.name,
      protocol: "TCP",
      client: address === "" ? "" : addressAndPort(address, port),
      endpoint: this.#endpoint?.name ?? "",
      end,
      durationMs: Math.round(performance.now() - this.#startMs),
      bytesFromClient: this.#bytesFromClient,
      bytesToClient: this.#bytesToClient,
    });
  }

  #choose(): Destination | ConnectionEnd {
    const { balancer, set, address, frontend } = this.#admitted;
    if (this.#endpoint !== undefined) {
      this.leave();
      this.#tried.push(this.#endpoint);
      if (this.#tried.length >= this.#context.connectAttempts) return "connect-failed";
      balancer.traffic.retries++;
    }
    const endpoint = balancer.choose(set, address, performance.now(), this.#tried);
    // Without endpoints, the last one was removed after the connection was accepted.
    if (endpoint === undefined) return balancer.has(set) ? "loop" : "connect-failed";
    endpoint.open++;
    this.#endpoint = endpoint;
    this.#open = endpoint;
    const { proxyProtocol: version } = balancer.settings;
    const header = version === "none" ? undefined : { version, address: frontend.address, port: frontend.port };
    return { address: endpoint.address, port: endpoint.port, header };
  }
}
