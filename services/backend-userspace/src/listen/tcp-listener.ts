import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { isIn, parseCidr } from "@kpng/model/address.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";
import { isAllowed } from "@kpng/service-plan/plan-service.ts";
import type { EndpointAddress, EndpointSetName, Frontend, NodePlan, Sender } from "@kpng/service-plan/service-plan.ts";
import type { Balancer } from "../balance/balancer.ts";
import { type Admitted, Connection, type RelayContext } from "../relay/connection.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";

/** The endpoint set for a client of a frontend, or the reason why the client is refused (see `ConnectionEnd`). */
export type Admission = EndpointSetName | "source" | "policy";

/** Decides, by source ranges and traffic policies, whether a client is admitted, and to which endpoint set. */
export function admit({ sources, routes }: Frontend, senders: Senders, address: string): Admission {
  // A link-local address has a zone, which no range has.
  const bare = address.replace(/%.*/, "");
  if (sources !== undefined && !isAllowed(bare, sources)) return "source";
  const route = routes[senders.senderOf(bare)];
  return route.kind === "balance" ? route.set : "policy";
}

/** What happens to new clients of a frontend, taken together. */
export type Verdict = "serve" | "refuse" | "drop";

/** Returns "serve" if any client has an endpoint; otherwise all routes have the same kind. */
export function verdictOf({ routes }: Frontend): Verdict {
  const kinds = (["pod", "node", "outside"] satisfies Sender[]).map((sender) => routes[sender].kind);
  if (kinds.includes("balance")) return "serve";
  return kinds.includes("refuse") ? "refuse" : "drop";
}

/**
 * Recognizes the kind of sender by its source address, which is all that a process knows about it. All frontends of a
 * family share one instance.
 *
 * If the plan recognizes pods by an interface, a sender in a subnet of such an interface counts as a pod.
 */
export class Senders {
  #podCIDRs: readonly string[] = [];
  #localAddresses: ReadonlySet<string> = new Set();

  update(node: NodePlan, localAddresses: Iterable<string>): void {
    this.#podCIDRs = podCIDRs(node);
    this.#localAddresses = new Set(localAddresses);
  }

  senderOf(address: string): Sender {
    if (this.#podCIDRs.some((cidr) => isIn(address, cidr))) return "pod";
    return this.#localAddresses.has(address) ? "node" : "outside";
  }

  /** Returns whether an address belongs to this node. */
  isLocal(address: string): boolean {
    return isLoopback(address) || this.#localAddresses.has(address);
  }
}

function podCIDRs({ podTraffic, family }: NodePlan): readonly string[] {
  if (podTraffic === undefined) return [];
  if (podTraffic.kind === "source") return [podTraffic.cidr];
  const isOfPods = (name: string): boolean =>
    podTraffic.kind === "interface" ? name === podTraffic.name : name.startsWith(podTraffic.prefix);
  const desired = family === "v4" ? "IPv4" : "IPv6";
  return Object.entries(networkInterfaces())
    .filter(([name]) => isOfPods(name))
    .flatMap(([, addresses = []]) => addresses)
    .flatMap(({ family: found, cidr }) => (found === desired && cidr !== null ? [parseCidr(cidr)?.cidr ?? cidr] : []));
}

/** Maximum number of connections that wait to be accepted. The kernel's own limit (net.core.somaxconn) may be lower. */
const backlog = 4_096;

/** The frontend that a listener serves. */
export interface ServedPort {
  readonly frontend: Frontend;
  readonly senders: Senders;
  readonly balancer: Balancer;
}

/**
 * Accepts TCP connections at one address and port, and begins a {@link Connection} for each. If the frontend or a limit
 * refuses a client, its connection is accepted and then reset, because a process cannot refuse a connection without
 * accepting it.
 */
export class TcpListener {
  readonly #server: Server;
  readonly #served: ServedPort;
  readonly #context: RelayContext;

  private constructor(served: ServedPort, context: RelayContext) {
    this.#served = served;
    this.#context = context;
    // With `pauseOnConnect`, a client is not read until its endpoint is connected.
    const options = { allowHalfOpen: true, pauseOnConnect: true, noDelay: true };
    this.#server = createServer(options, (client) => this.#accept(client));
  }

  /** Listens at an address. Rejects with the system's error, e.g. EADDRINUSE. */
  static async open(served: ServedPort, at: EndpointAddress, context: RelayContext): Promise<TcpListener> {
    const listener = new TcpListener(served, context);
    const server = listener.#server;
    server.listen({ host: at.address, port: at.port, backlog, ipv6Only: true });
    await once(server, "listening");
    // A connection could not be accepted, e.g. because of too many open files. It is lost, but the next one may
    // succeed.
    server.on("error", () => served.balancer.traffic.end("limit"));
    return listener;
  }

  /** Stops accepting connections; open connections go on. Resolves when they have ended. */
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

  /** Decides whether to admit a client. If it is refused, returns the reason. */
  #admit(client: Socket): Admitted | ConnectionEnd {
    const { frontend, senders, balancer } = this.#served;
    // There is no address if the client has already reset the connection.
    const address = client.remoteAddress;
    if (address === undefined) return "client-reset";
    const set = admit(frontend, senders, address);
    if (set !== "cluster" && set !== "local") return set;
    return this.#context.limit.tryTake(balancer.traffic, address) ? { address, balancer, set } : "limit";
  }
}
