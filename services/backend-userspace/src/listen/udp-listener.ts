import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { once } from "node:events";
import { isIPv6 } from "node:net";
import { getOrMake } from "@kpng/model/collections.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { ConnectionEnd, TrafficLimit } from "../traffic/service-traffic.ts";
import { admit, type ServedPort } from "./tcp-listener.ts";

/** Data that may wait in a socket to be sent, in bytes. More is dropped, as on a network that is too slow. */
const maxQueuedBytes = 262_144;

/** State that all UDP listeners in this process share. */
export interface UdpContext {
  readonly limit: TrafficLimit;
  readonly listeners: Set<UdpListener>;
}

/** Time limits for flows, in milliseconds. */
export interface FlowLimits {
  /** Time without a datagram after which a flow ends. */
  readonly idleMs: number;
  /** The same for a stream. As in conntrack, this is a flow that has an answer and is used for `streamAfterMs`. */
  readonly streamIdleMs: number;
  readonly streamAfterMs: number;
}

/**
 * Receives datagrams at one address and port, sends each client's datagrams to one endpoint, and returns the answers. A
 * flow ends when it is idle too long, when its endpoint is removed, or when the endpoint refuses a datagram; the
 * client's next datagram then begins another flow. Datagrams from clients that the frontend or a limit refuses are ignored.
 *
 * *Bound:* `UdpContext.limit` limits the number of flows, each of which has one socket. When a limit is reached, a new
 * flow takes the place of the flow of the same client that has been idle longest: most flows are single DNS lookups,
 * which nothing follows. It never ends flows of other clients, so a flood from many source ports cannot do that either.
 */
export class UdpListener {
  readonly #socket: Socket;
  readonly #served: ServedPort;
  readonly #context: UdpContext;
  /** Flows, keyed by address and port of the client. The flows of a client are in the order of their last datagrams. */
  readonly #flows = new Map<string, Map<number, UdpFlow>>();

  private constructor(served: ServedPort, family: "udp4" | "udp6", context: UdpContext) {
    this.#served = served;
    this.#context = context;
    this.#socket = createSocket({ type: family, ipv6Only: family === "udp6", lookup: noLookup });
  }

  /** Listens at an address. Rejects with the system's error, e.g. EADDRINUSE. */
  static async open(served: ServedPort, { address, port }: EndpointAddress, context: UdpContext): Promise<UdpListener> {
    const listener = new UdpListener(served, isIPv6(address) ? "udp6" : "udp4", context);
    const socket = listener.#socket;
    const listening = once(socket, "listening");
    socket.bind({ address, port });
    await listening.catch((error: unknown) => {
      socket.close();
      throw error;
    });
    // This means that a client has refused an answer, which does not concern other clients.
    socket.on("error", () => undefined);
    socket.on("message", (data, from) => listener.#receive(data, from));
    context.listeners.add(listener);
    return listener;
  }

  close(end: ConnectionEnd = "closed"): Promise<void> {
    this.#context.listeners.delete(this);
    for (const flow of this.#all()) this.#end(flow, end);
    return new Promise((resolve) => this.#socket.close(() => resolve()));
  }

  /** Ends flows that have reached a time limit. */
  sweep({ idleMs, streamIdleMs, streamAfterMs }: FlowLimits, nowMs: number): void {
    for (const flow of this.#all()) {
      const isStream = flow.hasAnswer && flow.usedMs - flow.beganMs >= streamAfterMs;
      if (nowMs - flow.usedMs >= (isStream ? streamIdleMs : idleMs)) this.#end(flow, "closed");
    }
  }

  *#all(): Generator<UdpFlow, void, void> {
    for (const flows of this.#flows.values()) yield* flows.values();
  }

  #receive(data: Buffer, { address, port }: RemoteInfo): void {
    // No answer could be sent to port 0; Node.js would throw.
    if (port === 0) return;
    let flow = this.#flows.get(address)?.get(port);
    // Begin another flow if the endpoint has been removed or the frontend now belongs to another Service.
    if (flow !== undefined && (flow.endpoint.removedMs !== undefined || flow.balancer !== this.#served.balancer)) {
      this.#end(flow, "drained");
      flow = undefined;
    }
    flow ??= this.#begin({ address, port });
    if (flow === undefined) return;
    this.#served.balancer.traffic.bytesFromClients += data.length;
    this.#use(flow);
    if (isFull(flow.socket)) return;
    try {
      flow.socket.send(data);
    } catch (error) {
      // The socket is not connected.
      this.#fail(flow, error as NodeJS.ErrnoException);
    }
  }

  /** Begins a flow. Returns undefined if it was refused or has failed. */
  #begin(client: EndpointAddress): UdpFlow | undefined {
    const { address, port } = client;
    const { frontend, senders, balancer } = this.#served;
    const { traffic } = balancer;
    traffic.total++;
    const set = admit(frontend, senders, address);
    if (set === "source" || set === "policy") return void traffic.end(set);
    if (!this.#take(address)) return void traffic.end("limit");
    const nowMs = performance.now();
    const endpoint = balancer.choose(set, address, nowMs);
    if (endpoint === undefined) {
      this.#context.limit.release(traffic, address);
      return void traffic.end(balancer.has(set) ? "loop" : "policy");
    }
    const socket = createSocket({ type: isIPv6(endpoint.address) ? "udp6" : "udp4", lookup: noLookup });
    const flow: UdpFlow = { client, endpoint, balancer, socket, hasAnswer: false, beganMs: nowMs, usedMs: nowMs };
    getOrMake(this.#flows, address, () => new Map<number, UdpFlow>()).set(port, flow);
    socket.on("error", (error: NodeJS.ErrnoException) => this.#fail(flow, error));
    socket.on("message", (answer) => {
      flow.hasAnswer = true;
      this.#use(flow);
      if (isFull(this.#socket)) return;
      traffic.bytesToClients += answer.length;
      this.#socket.send(answer, port, address);
    });
    // If there are too many open files or there is no route to the endpoint, this ends the flow before it returns.
    socket.connect(endpoint.port, endpoint.address);
    return this.#flows.get(address)?.get(port);
  }

  /** Takes a place for a flow of a client, if need be the place of its flow that has been idle longest. */
  #take(address: string): boolean {
    const { traffic } = this.#served.balancer;
    const { limit } = this.#context;
    if (limit.tryTake(traffic, address)) return true;
    const [oldest] = this.#flows.get(address)?.values() ?? [];
    if (oldest === undefined) return false;
    this.#end(oldest, "limit");
    return limit.tryTake(traffic, address);
  }

  /** Records that a flow has had a datagram. */
  #use(flow: UdpFlow): void {
    flow.usedMs = performance.now();
    const flows = this.#flows.get(flow.client.address);
    flows?.delete(flow.client.port);
    flows?.set(flow.client.port, flow);
  }

  /** Ends a flow because its endpoint refused a datagram (ICMP) or its socket failed. */
  #fail(flow: UdpFlow, { code }: NodeJS.ErrnoException): void {
    const isLimit = code === "EMFILE" || code === "ENFILE";
    if (!isLimit) flow.balancer.forget(flow.client.address);
    this.#end(flow, isLimit ? "limit" : "endpoint-reset");
  }

  #end(flow: UdpFlow, end: ConnectionEnd): void {
    const { address, port } = flow.client;
    const flows = this.#flows.get(address);
    if (flows?.get(port) !== flow) return;
    const { traffic } = flow.balancer;
    flows.delete(port);
    if (flows.size === 0) this.#flows.delete(address);
    flow.socket.close();
    this.#context.limit.release(traffic, address);
    traffic.end(end);
  }
}

/** Returns whether so much data waits in a socket that further data must be dropped. */
const isFull = (socket: Socket): boolean => socket.getSendQueueSize() > maxQueuedBytes;

/** One client's datagrams to one endpoint. */
interface UdpFlow {
  readonly client: EndpointAddress;
  readonly endpoint: BalancedEndpoint;
  /** The balancer of the service port to which the flow belongs. */
  readonly balancer: Balancer;
  /** Connected, so that it receives only the endpoint's answers, and reports its refusals. */
  readonly socket: Socket;
  hasAnswer: boolean;
  readonly beganMs: number;
  /** Time of the last datagram. */
  usedMs: number;
}

/**
 * Returns the address unchanged. Node.js calls the resolver even for addresses, and a socket can bind, connect and send
 * in one turn only if the answer is synchronous.
 */
function noLookup(
  address: string,
  _options: unknown,
  callback: (error: NodeJS.ErrnoException | null, address: string, family: number) => void,
): void {
  callback(null, address, isIPv6(address) ? 6 : 4);
}
