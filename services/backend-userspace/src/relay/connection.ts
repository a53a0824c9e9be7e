import { Socket } from "node:net";
import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointSetName } from "@kpng/service-plan/service-plan.ts";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { AccessLog } from "../traffic/access-log.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { TrafficLimit } from "../traffic/traffic-limits.ts";
import { proxyHeader } from "./proxy-header.ts";
import type { ReadBuffer } from "./read-buffer.ts";
import type { ReadGarbage } from "./read-garbage.ts";

/** State that all connections of the process share. */
export interface RelayContext {
  readonly limit: TrafficLimit;
  /** The open connections, for `sweep`. */
  readonly open: Set<Connection>;
  readonly buffer: ReadBuffer;
  /** Told of all data from clients, which has memory of its own. */
  readonly garbage: ReadGarbage;
  /** Time limit of the first attempt to connect, in milliseconds; it doubles with each further attempt. */
  readonly connectTimeoutMs: number;
  /** Number of attempts to connect, at least 1. */
  readonly connectAttempts: number;
  readonly accessLog: AccessLog | undefined;
}

/** An accepted connection, and where it may go. */
export interface Accepted {
  readonly client: Socket;
  /** "" unless affinity or an option needs it. */
  readonly clientAddress: string;
  readonly balancer: Balancer;
  readonly set: EndpointSetName;
  /** Where the client connected to, for the PROXY protocol; the socket's own address if undefined. */
  readonly frontend: { readonly address: string | undefined; readonly port: number };
}

/**
 * A client's connection and the one to its endpoint. `TcpListener` makes one for each accepted connection that it lets
 * through. Separate from it, because a connection outlives a closed listener: it ends by itself or by `sweep`.
 *
 * 1. Connecting: nothing is read from the client. An attempt that fails is followed by one to another endpoint, with
 *    twice the time limit; after the last, the client is reset.
 * 2. Relaying: each side is read only while the other side takes the data, so a slow reader holds back its own sender
 *    and at most two pieces of 64 KiB wait in each direction. An end of data is passed on and the other direction goes
 *    on; a reset is passed on as a reset.
 * 3. Closed when both sockets are.
 *
 * Data from the client arrives as events, because Node.js lets only sockets that it did not accept read into given
 * memory ({@link ReadBuffer}).
 */
export class Connection {
  readonly #accepted: Accepted;
  readonly #context: RelayContext;
  readonly #startMs = performance.now();
  #endpoint: BalancedEndpoint | undefined;
  #tried: BalancedEndpoint[] = [];
  #upstream: Socket | undefined;
  /** Undefined after the last attempt to connect. */
  #timer: NodeJS.Timeout | undefined;
  #openSockets = 1;
  #end: ConnectionEnd | undefined;
  #bytesFromClient = 0;
  #bytesToClient = 0;
  #seenBytes = 0;
  #idleSweeps = 0;
  #hasKeepAlive = false;
  /** Whether one side has ended its data. */
  isHalfClosed = false;

  /** Begins to connect. The place in `context.limit` is taken already. */
  constructor(accepted: Accepted, context: RelayContext) {
    this.#accepted = accepted;
    this.#context = context;
    context.open.add(this);
    const { client } = accepted;
    client.on("error", () => this.reset("client-reset"));
    client.once("close", () => this.#onClose());
    this.#connect();
  }

  /** When the endpoint left the plan, in milliseconds; undefined if it did not. */
  get removedMs(): number | undefined {
    return this.#endpoint?.removedMs;
  }

  /** Resets both sides; without effect on a connection that has ended. */
  reset(end: ConnectionEnd): void {
    this.#end ??= end;
    clearTimeout(this.#timer);
    resetSocket(this.#accepted.client);
    if (this.#upstream !== undefined) resetSocket(this.#upstream);
  }

  /**
   * Returns how many sweeps in a row found no new data, this one included. A connection that outlives a sweep gets TCP
   * keepalive, which finds peers that vanished; short connections are spared the system calls.
   */
  sweep(keepAliveMs: number): number {
    const bytes = this.#bytesFromClient + this.#bytesToClient;
    this.#idleSweeps = bytes === this.#seenBytes ? this.#idleSweeps + 1 : 0;
    this.#seenBytes = bytes;
    if (!this.#hasKeepAlive && this.#timer === undefined && this.#upstream !== undefined) {
      this.#hasKeepAlive = true;
      for (const socket of [this.#accepted.client, this.#upstream]) socket.setKeepAlive(true, keepAliveMs);
    }
    return this.#idleSweeps;
  }

  #connect(): void {
    const { balancer, set, clientAddress } = this.#accepted;
    const endpoint = balancer.choose(set, clientAddress, performance.now(), this.#tried);
    if (endpoint === undefined) {
      // Without endpoints, the last one was removed after the connection was accepted.
      this.reset(balancer.has(set) ? "loop" : "connect-failed");
      return;
    }
    const { buffer, connectTimeoutMs } = this.#context;
    this.#endpoint = endpoint;
    endpoint.open++;
    const upstream = new Socket({
      allowHalfOpen: true,
      onread: { buffer: buffer.current, callback: (length, memory) => this.#toClient(length, memory) },
    });
    this.#upstream = upstream;
    let isConnected = false;
    upstream.once("connect", () => {
      isConnected = true;
      this.#relay(upstream);
    });
    upstream.on("error", () => {
      if (isConnected) this.reset("endpoint-reset");
    });
    upstream.once("close", () => {
      endpoint.open--;
      if (isConnected) this.#onClose();
      else if (this.#end === undefined) this.#retry(endpoint);
    });
    this.#timer = setTimeout(() => upstream.destroy(), connectTimeoutMs * 2 ** this.#tried.length);
    upstream.connect({ host: endpoint.address, port: endpoint.port });
  }

  #retry(failed: BalancedEndpoint): void {
    clearTimeout(this.#timer);
    this.#upstream = undefined;
    this.#tried.push(failed);
    if (this.#tried.length >= this.#context.connectAttempts) {
      this.reset("connect-failed");
      return;
    }
    this.#accepted.balancer.traffic.retries++;
    this.#connect();
  }

  #relay(upstream: Socket): void {
    const { client } = this.#accepted;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#openSockets++;
    this.#tried = [];
    if (client.destroyed) {
      this.reset("client-reset");
      return;
    }
    upstream.setNoDelay(true);
    this.#writeProxyHeader(upstream);
    client.on("data", (data: Buffer) => {
      this.#bytesFromClient += data.length;
      this.#accepted.balancer.traffic.bytesFromClients += data.length;
      this.#context.garbage.add(data.length);
      if (!upstream.write(data)) client.pause();
    });
    upstream.on("drain", () => client.resume());
    client.on("drain", () => upstream.resume());
    client.once("end", () => {
      this.isHalfClosed = true;
      upstream.end();
    });
    upstream.once("end", () => {
      this.isHalfClosed = true;
      client.end();
    });
    client.resume();
  }

  /** Returns false if the endpoint must not be read until the client has taken the data. */
  #toClient(length: number, memory: Uint8Array): boolean {
    const { client, balancer } = this.#accepted;
    this.#bytesToClient += length;
    balancer.traffic.bytesToClients += length;
    const isTaken = client.write(memory.subarray(0, length));
    if (client.writableLength > 0) this.#context.buffer.replace();
    return isTaken;
  }

  #writeProxyHeader(upstream: Socket): void {
    const { client, balancer, frontend } = this.#accepted;
    const { proxyProtocol } = balancer.settings;
    if (proxyProtocol === "none") return;
    const { remoteAddress, remotePort, localAddress } = client;
    if (remoteAddress === undefined || remotePort === undefined || localAddress === undefined) return;
    // The header has no place for the zone of a link-local address.
    const [clientAddress = "", address = ""] = [remoteAddress, frontend.address ?? localAddress].map(withoutZone);
    const header = { clientAddress, clientPort: remotePort, address, port: frontend.port };
    upstream.write(proxyHeader(proxyProtocol, header));
  }

  #onClose(): void {
    if (--this.#openSockets > 0) return;
    const { open, limit, accessLog } = this.#context;
    const { traffic, settings } = this.#accepted.balancer;
    if (!open.delete(this)) return;
    clearTimeout(this.#timer);
    limit.release(traffic);
    const end = this.#end ?? "closed";
    traffic.end(end);
    accessLog?.write({
      service: settings.plan.name,
      protocol: "TCP",
      client: describeClient(this.#accepted),
      endpoint: this.#endpoint?.name ?? "",
      end,
      durationMs: Math.round(performance.now() - this.#startMs),
      bytesFromClient: this.#bytesFromClient,
      bytesToClient: this.#bytesToClient,
    });
  }
}

function resetSocket(socket: Socket): void {
  // A socket that is still connecting has no peer to reset, and Node.js would wait for the connection.
  if (socket.connecting) socket.destroy();
  else if (!socket.destroyed) socket.resetAndDestroy();
}

const withoutZone = (address: string): string => address.replace(/%.*/, "");

function describeClient({ client, clientAddress }: Accepted): string {
  const { remotePort } = client;
  return clientAddress === "" || remotePort === undefined ? clientAddress : addressAndPort(clientAddress, remotePort);
}
