import { createSocket, type Socket } from "node:dgram";
import { isIPv6 } from "node:net";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";

interface FlowEvents {
  onAnswer(data: Buffer): void;
  /** The endpoint refused a datagram (ICMP), or the socket failed. */
  onError(error: NodeJS.ErrnoException): void;
}

/**
 * The way of one client's datagrams to one endpoint: a connected socket, so that the endpoint's answers come back to
 * this client, and its refusals are reported. `UdpListener` has one for each client address and port. Separate from it,
 * because the listener receives from all clients at one socket.
 *
 * Nothing is reported before {@link start}, and errors may be reported during it.
 */
export class UdpFlow {
  readonly endpoint: BalancedEndpoint;
  /** The service port that it belongs to. */
  readonly balancer: Balancer;
  readonly #socket: Socket;
  readonly #events: FlowEvents;
  hasAnswer = false;
  /** Sweeps in a row without a datagram. */
  idleSweeps = 0;

  constructor(endpoint: BalancedEndpoint, balancer: Balancer, events: FlowEvents) {
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
export function noLookup(
  address: string,
  _options: unknown,
  callback: (error: NodeJS.ErrnoException | null, address: string, family: number) => void,
): void {
  callback(null, address, isIPv6(address) ? 6 : 4);
}
