import { Socket } from "node:net";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { Destination, Passage } from "./passage.ts";
import { proxyHeader } from "./proxy-header.ts";
import type { ReadBuffer } from "./read-buffer.ts";
import type { ReadGarbage } from "./read-garbage.ts";

/** Connections that may wait to be accepted; the kernel's own limit (net.core.somaxconn) may be lower. */
export const listenBacklog = 4_096;

/** Options of each server whose clients get a {@link Connection}, which reads nothing before its endpoint is there. */
export const relayServerOptions = { allowHalfOpen: true, pauseOnConnect: true, noDelay: true } as const;

/** State that all connections of the process share. */
export interface RelayContext {
  /** The open connections, for `sweep`. */
  readonly open: Set<Connection>;
  readonly buffer: ReadBuffer;
  /** Told of all data from clients, which has memory of its own. */
  readonly garbage: ReadGarbage;
  /** Time limit of the first attempt to connect, in milliseconds; it doubles with each further attempt. */
  readonly connectTimeoutMs: number;
}

/**
 * A client's connection and the one to its endpoint. `TcpListener` makes one for each accepted connection that it lets
 * through, and so does a worker. Separate from them, because a connection outlives a closed listener: it ends by itself
 * or by `sweep`. Decisions and counters are in its {@link Passage}.
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
  readonly #client: Socket;
  readonly #passage: Passage;
  readonly #context: RelayContext;
  #attempts = 0;
  #upstream: Socket | undefined;
  /** Undefined after the last attempt to connect. */
  #timer: NodeJS.Timeout | undefined;
  #openSockets = 1;
  #end: ConnectionEnd | undefined;
  #bytes = 0;
  #seenBytes = 0;
  #idleSweeps = 0;
  #hasKeepAlive = false;
  /** Whether one side has ended its data. */
  isHalfClosed = false;

  /** Begins to connect. */
  constructor(client: Socket, passage: Passage, context: RelayContext) {
    this.#client = client;
    this.#passage = passage;
    this.#context = context;
    context.open.add(this);
    client.on("error", () => this.reset("client-reset"));
    client.once("close", () => this.#onClose());
    this.#connectNext();
  }

  /** When the endpoint left the plan, in milliseconds; undefined if it did not. */
  get removedMs(): number | undefined {
    return this.#passage.removedMs;
  }

  /** Resets both sides; without effect on a connection that has ended. */
  reset(end: ConnectionEnd): void {
    this.#end ??= end;
    clearTimeout(this.#timer);
    resetSocket(this.#client);
    if (this.#upstream !== undefined) resetSocket(this.#upstream);
  }

  /**
   * Returns how many sweeps in a row found no new data, this one included. A connection that outlives a sweep gets TCP
   * keepalive, which finds peers that vanished; short connections are spared the system calls.
   */
  sweep(keepAliveMs: number): number {
    this.#idleSweeps = this.#bytes === this.#seenBytes ? this.#idleSweeps + 1 : 0;
    this.#seenBytes = this.#bytes;
    if (!this.#hasKeepAlive && this.#timer === undefined && this.#upstream !== undefined) {
      this.#hasKeepAlive = true;
      for (const socket of [this.#client, this.#upstream]) socket.setKeepAlive(true, keepAliveMs);
    }
    return this.#idleSweeps;
  }

  #connectNext(): void {
    this.#passage.next((to) => {
      if (typeof to === "string") this.reset(to);
      else if (!this.#client.destroyed) this.#connect(to);
    });
  }

  #connect(to: Destination): void {
    const { buffer, connectTimeoutMs } = this.#context;
    const upstream = new Socket({
      allowHalfOpen: true,
      onread: { buffer: buffer.current, callback: (length, memory) => this.#toClient(length, memory) },
    });
    this.#upstream = upstream;
    let isConnected = false;
    upstream.once("connect", () => {
      isConnected = true;
      this.#relay(upstream, to);
    });
    upstream.on("error", () => {
      if (isConnected) this.reset("endpoint-reset");
    });
    upstream.once("close", () => {
      if (isConnected) {
        this.#passage.leave();
        this.#onClose();
      } else if (this.#end === undefined) {
        clearTimeout(this.#timer);
        this.#upstream = undefined;
        this.#connectNext();
      }
    });
    this.#timer = setTimeout(() => upstream.destroy(), connectTimeoutMs * 2 ** this.#attempts++);
    upstream.connect({ host: to.address, port: to.port });
  }

  #relay(upstream: Socket, { header }: Destination): void {
    const client = this.#client;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#openSockets++;
    if (client.destroyed) {
      this.reset("client-reset");
      return;
    }
    upstream.setNoDelay(true);
    if (header !== undefined) this.#writeProxyHeader(upstream, header);
    client.on("data", (data: Buffer) => {
      this.#bytes += data.length;
      this.#passage.carried(data.length, 0);
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
    const client = this.#client;
    this.#bytes += length;
    this.#passage.carried(0, length);
    const isTaken = client.write(memory.subarray(0, length));
    if (client.writableLength > 0) this.#context.buffer.replace();
    return isTaken;
  }

  #writeProxyHeader(upstream: Socket, { version, address: frontend, port }: NonNullable<Destination["header"]>): void {
    const { remoteAddress, remotePort, localAddress } = this.#client;
    if (remoteAddress === undefined || remotePort === undefined || localAddress === undefined) return;
    // The header has no place for the zone of a link-local address.
    const [clientAddress = "", address = ""] = [remoteAddress, frontend ?? localAddress].map(withoutZone);
    upstream.write(proxyHeader(version, { clientAddress, clientPort: remotePort, address, port }));
  }

  #onClose(): void {
    if (--this.#openSockets > 0) return;
    if (!this.#context.open.delete(this)) return;
    clearTimeout(this.#timer);
    this.#passage.end(this.#end ?? "closed");
  }
}

function resetSocket(socket: Socket): void {
  // A socket that is still connecting has no peer to reset, and Node.js would wait for the connection.
  if (socket.connecting) socket.destroy();
  else if (!socket.destroyed) socket.resetAndDestroy();
}

const withoutZone = (address: string): string => address.replace(/%.*/, "");
