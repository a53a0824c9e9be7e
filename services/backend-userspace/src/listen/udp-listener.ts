import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { isIPv6 } from "node:net";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { ConnectionEnd, TrafficLimit } from "../traffic/service-traffic.ts";
import type { ServedPort } from "./tcp-listener.ts";

/** State that all UDP listeners of the process share. */
export interface UdpContext {
  readonly limit: TrafficLimit;
  readonly listeners: Set<UdpListener>;
}

/** Limits of flows in sweeps, see {@link UdpListener.sweep}. */
interface FlowSweeps {
  readonly unanswered: number;
  readonly answered: number;
}

/**
 * Receives datagrams at one address and port, sends those of each client to one endpoint, and returns the answers. A
 * flow ends when it is idle, when its endpoint is gone, or when the endpoint refuses a datagram; the client's next
 * datagram then begins another one. Datagrams of clients that the gate or a limit refuses are ignored.
 *
 * *Bound:* `UdpContext.limit` flows, each with one socket, of which one client may take half. New flows are ignored
 * when it is reached, because a flood from many source ports must not end the flows of others.
 */
export class UdpListener {
  readonly #socket: Socket;
  readonly #served: ServedPort;
  readonly #context: UdpContext;
  /** By `address port` of the client. */
  readonly #flows = new Map<string, UdpFlow>();

  private constructor(served: ServedPort, family: "udp4" | "udp6", context: UdpContext) {
    this.#served = served;
    this.#context = context;
    this.#socket = createSocket({ type: family, ipv6Only: family === "udp6", lookup: noLookup });
  }

  /** Listens at an address. Rejects with the system's error, e.g. EADDRINUSE. */
  static async open(
    served: ServedPort,
    { address, port }: { readonly address: string; readonly port: number },
    context: UdpContext,
  ): Promise<UdpListener> {
    const listener = new UdpListener(served, isIPv6(address) ? "udp6" : "udp4", context);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const socket = listener.#socket;
    socket.once("error", reject);
    socket.bind({ address, port }, resolve);
    await promise.catch((error: unknown) => {
      socket.close();
      throw error;
    });
    socket.removeListener("error", reject);
    // A client has refused an answer; that concerns this client alone.
    socket.on("error", () => undefined);
    socket.on("message", (data, from) => listener.#receive(data, from));
    context.listeners.add(listener);
    return listener;
  }

  close(end: ConnectionEnd = "closed"): Promise<void> {
    this.#context.listeners.delete(this);
    for (const key of this.#flows.keys()) this.#end(key, end);
    return new Promise((resolve) => this.#socket.close(() => resolve()));
  }

  /** Ends flows without a datagram for so many sweeps. */
  sweep(limits: FlowSweeps): void {
    for (const [key, flow] of this.#flows) {
      if (flow.idleSweeps++ >= (flow.hasAnswer ? limits.answered : limits.unanswered)) this.#end(key, "closed");
    }
  }

  #receive(data: Buffer, { address, port }: RemoteInfo): void {
    // No answer can be sent to port 0: Node.js throws for it.
    if (port === 0) return;
    const key = `${address} ${port}`;
    let flow = this.#flows.get(key);
    // The endpoint is gone, or the frontend now belongs to another Service.
    if (flow !== undefined && (flow.endpoint.removedMs !== undefined || flow.balancer !== this.#served.balancer)) {
      this.#end(key, "drained");
      flow = undefined;
    }
    if (flow === undefined) this.#begin(key, address, port);
    flow = this.#flows.get(key);
    if (flow === undefined) return;
    this.#served.balancer.traffic.bytesFromClients += data.length;
    flow.send(data);
  }

  /** Begins a flow, which is in the map afterwards unless it was refused or has failed. */
  #begin(key: string, address: string, port: number): void {
    const { gate, balancer } = this.#served;
    const { traffic } = balancer;
    traffic.total++;
    const set = gate.admit(address);
    if (set === "source" || set === "policy") {
      traffic.end(set);
      return;
    }
    if (!this.#context.limit.tryTake(traffic, address)) {
      traffic.end("limit");
      return;
    }
    const endpoint = balancer.choose(set, address, performance.now());
    if (endpoint === undefined) {
      this.#context.limit.release(traffic, address);
      traffic.end(balancer.has(set) ? "loop" : "policy");
      return;
    }
    const flow = new UdpFlow(address, endpoint, balancer, {
      onAnswer: (data) => {
        traffic.bytesToClients += data.length;
        this.#socket.send(data, port, address);
      },
      onError: ({ code }) => {
        if (this.#flows.get(key) !== flow) return;
        const isLimit = code === "EMFILE" || code === "ENFILE";
        if (!isLimit) balancer.forget(address);
        this.#end(key, isLimit ? "limit" : "endpoint-reset");
      },
    });
    this.#flows.set(key, flow);
    flow.start();
  }

  #end(key: string, end: ConnectionEnd): void {
    const flow = this.#flows.get(key);
    if (flow === undefined) return;
    const { traffic } = flow.balancer;
    this.#flows.delete(key);
    flow.close();
    this.#context.limit.release(traffic, flow.client);
    traffic.end(end);
  }
}

interface FlowEvents {
  onAnswer(data: Buffer): void;
  /** The endpoint refused a datagram (ICMP), or the socket failed. */
  onError(error: NodeJS.ErrnoException): void;
}

/**
 * The way of one client's datagrams to one endpoint: a connected socket, so that the endpoint's answers come back to
 * this client, and its refusals are reported.
 *
 * Nothing is reported before {@link start}, and errors may be reported during it.
 */
class UdpFlow {
  /** Address of the client. */
  readonly client: string;
  readonly endpoint: BalancedEndpoint;
  /** The service port that it belongs to. */
  readonly balancer: Balancer;
  readonly #socket: Socket;
  readonly #events: FlowEvents;
  hasAnswer = false;
  /** Sweeps in a row without a datagram. */
  idleSweeps = 0;

  constructor(client: string, endpoint: BalancedEndpoint, balancer: Balancer, events: FlowEvents) {
    this.client = client;
    this.endpoint = endpoint;
    this.balancer = balancer;
    endpoint.open++;
    this.#socket = createSocket({ type: isIPv6(endpoint.address) ? "udp6" : "udp4", lookup: noLookup });
    this.#events = events;
  }

  /** Connects the socket. Too many open files, or no route to the endpoint, is reported before it returns. */
  start(): void {
    const { endpoint } = this;
    const [socket, events] = [this.#socket, this.#events];
    socket.on("error", (error) => events.onError(error));
    socket.on("message", (data) => {
      this.idleSweeps = 0;
      this.hasAnswer = true;
      events.onAnswer(data);
    });
    socket.connect(endpoint.port, endpoint.address);
  }

  send(data: Buffer): void {
    this.idleSweeps = 0;
    try {
      this.#socket.send(data);
    } catch (error) {
      // Not connected.
      this.#events.onError(error as NodeJS.ErrnoException);
    }
  }

  close(): void {
    this.endpoint.open--;
    this.#socket.close();
  }
}

/**
 * Takes the address as it is. Node.js asks the resolver even for addresses, and only a synchronous answer lets a socket
 * bind, connect and send in one turn.
 */
function noLookup(
  address: string,
  _options: unknown,
  callback: (error: NodeJS.ErrnoException | null, address: string, family: number) => void,
): void {
  callback(null, address, isIPv6(address) ? 6 : 4);
}
