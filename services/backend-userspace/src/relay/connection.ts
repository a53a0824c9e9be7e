import { Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { EndpointSetName } from "@kpng/service-plan/service-plan.ts";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { ConnectionEnd, TrafficLimit } from "../traffic/service-traffic.ts";

/** As much as Node.js reads from an accepted socket at a time, in bytes. */
const readBufferBytes = 65_536;

/** Number of free buffers that are kept. */
const maxFreeBuffers = 64;

/**
 * Memory for data from endpoints. All connections read into one buffer, so that an idle connection needs none. The next
 * read, of any connection, overwrites that buffer, so data is copied into another one before it is written to a client.
 * These are used again and again: with new memory for each piece, V8 would collect its whole heap so often that a
 * download would take more than twice the CPU time.
 *
 * *Bound:* each connection has at most one of them; 64 free ones (4 MiB) are kept.
 */
export class RelayBuffers {
  readonly shared = Buffer.allocUnsafeSlow(readBufferBytes);
  readonly #free: Buffer[] = [];

  /** Returns a buffer with any content, as large as `shared`. */
  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(readBufferBytes);
  }

  /** Accepts a buffer that nothing reads or writes any more. */
  giveBack(buffer: Buffer): void {
    if (this.#free.length < maxFreeBuffers) this.#free.push(buffer);
  }
}

const collectAfterBytes = 4 * 1_048_576;

/**
 * Frees the memory of data from clients, which becomes garbage as soon as the data is written: after each 4 MiB, it
 * collects V8's young generation. By itself V8 would collect the whole heap after each 40 MiB, because the young
 * generation contains only the small objects that own this memory (docs/design/userspace.md).
 */
export class ReadGarbage {
  /** V8's function `gc`. */
  readonly #collect: (options: { readonly type: "minor" }) => void;
  #bytes = 0;

  constructor() {
    // `gc` is defined only in contexts that are created after the flag is set, and not in the main context.
    setFlagsFromString("--expose-gc");
    this.#collect = runInNewContext("gc");
  }

  /** Records that the given number of bytes were read into new memory. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < collectAfterBytes) return;
    this.#bytes = 0;
    this.#collect({ type: "minor" });
  }
}

/** Time limit of the first attempt to connect, in milliseconds. The limit doubles with each further attempt. */
const connectTimeoutMs = 250;

const connectAttempts = 4;

/** Idle time after which TCP keepalive checks whether a peer still exists. */
const keepAliveMs = 120_000;

/** Time limits for connections. */
export interface ConnectionLimits {
  /** Time without data after which a connection is reset, in milliseconds. */
  readonly idleMs: number;
  /** The same for a connection on which one side has ended its data. */
  readonly halfClosedMs: number;
  /** Time from the removal of an endpoint until its connections are reset, in milliseconds. */
  readonly drainMs: number;
}

/** State that all connections in this process share. */
export interface RelayContext {
  readonly limit: TrafficLimit;
  /** The open connections. */
  readonly open: Set<Connection>;
  readonly buffers: RelayBuffers;
  /** Counts the data read from clients, for each piece of which Node.js allocates memory. */
  readonly garbage: ReadGarbage;
}

/** A client that was admitted, and the endpoints that it may reach. */
export interface Admitted {
  /** Address of the client. */
  readonly address: string;
  readonly balancer: Balancer;
  readonly set: EndpointSetName;
}

/**
 * A client's connection and the connection to its endpoint. It may outlive the listener that accepted it; it ends when
 * client or endpoint close it or when {@link sweep} resets it.
 *
 * Problem: one process with one event loop carries all connections of a node. It must forward ends, resets and
 * backpressure as if client and endpoint were connected directly, and must not buffer data that a slow reader does not
 * take. Most of its CPU time is spent on handling pieces of data.
 *
 * ```text
 * client ─► listener ─► admit (source range, policy) ─► Connection
 *                                                         │ Balancer.choose ─► 10.1.0.7:8080, no answer in 250 ms
 *                                                         │ Balancer.choose ─► 10.1.0.8:8080, connected
 * data of the client:    "data" event            ─► upstream.write; if false, client.pause until "drain"
 * data of the endpoint:  onread, copy            ─► client.write; if data waits, not read until it is taken
 * ```
 *
 * States:
 *
 * 1. Connecting: nothing is read from the client. The balancer chooses an endpoint. After each failed attempt it
 *    chooses another endpoint, and the time limit doubles (250, 500, 1 000, 2 000 ms). After the fourth failed attempt,
 *    the client is reset.
 * 2. Relaying: each side is read only while the other side takes the data, so a slow reader holds back its own sender
 *    and at most one piece of 64 KiB waits for the client and two for the endpoint. When one side ends its data, the end is forwarded and the
 *    other direction goes on; a reset is forwarded as a reset.
 * 3. Closed: both sockets are closed. The connection no longer counts towards the limit.
 *
 * Invariants: a changed plan affects only later calls of `Balancer.choose`; an open connection stays with its endpoint
 * until it ends, is idle too long, or `drainMs` has passed since the endpoint was removed. When the process ends,
 * connections are reset, because a client would take an end of data for the end of a complete answer.
 *
 * Measures that keep the cost low, according to measurements (docs/design/userspace.md):
 *
 * - Data from endpoints is read into `RelayBuffers` (`onread`); data from clients becomes `ReadGarbage`.
 * - Connections have no timers, because each piece of data would have to restart one. Instead, a sweep every few seconds
 *   compares byte counts.
 * - Counters are plain fields, because a metric with labels takes a microsecond for each piece of data.
 */
export class Connection {
  readonly #client: Socket;
  readonly #admitted: Admitted;
  readonly #context: RelayContext;
  #upstream: Socket | undefined;
  /** The endpoint that was chosen last. */
  #endpoint: BalancedEndpoint | undefined;
  /** Endpoints to which an attempt to connect has failed. */
  readonly #tried: BalancedEndpoint[] = [];
  /** Timer for the connection attempt; undefined after the last attempt. */
  #timer: NodeJS.Timeout | undefined;
  #openSockets = 1;
  #end: ConnectionEnd | undefined;
  #bytes = 0;
  /** Number of bytes at the last sweep, and the time of the first sweep that found this number. */
  #sweptBytes = 0;
  #activeMs = performance.now();
  #hasKeepAlive = false;
  /** Whether one side has ended its data. */
  #isHalfClosed = false;

  /** Begins to connect. The caller must have taken a place in `context.limit` for the connection. */
  constructor(client: Socket, admitted: Admitted, context: RelayContext) {
    this.#client = client;
    this.#admitted = admitted;
    this.#context = context;
    context.open.add(this);
    client.on("error", () => this.reset("client-reset"));
    client.once("close", () => this.#onClose());
    this.#connectNext();
  }

  /** Resets both sides. It has no effect on a connection that has ended. */
  reset(end: ConnectionEnd): void {
    this.#end ??= end;
    clearTimeout(this.#timer);
    resetSocket(this.#client);
    if (this.#upstream !== undefined) resetSocket(this.#upstream);
  }

  /**
   * Resets the connection if it has reached a time limit. Also enables TCP keepalive, which detects peers that have
   * vanished. This is done in a sweep so that short connections are spared the system calls.
   */
  sweep({ idleMs, halfClosedMs, drainMs }: ConnectionLimits, nowMs: number): void {
    if (this.#bytes !== this.#sweptBytes) this.#activeMs = nowMs;
    this.#sweptBytes = this.#bytes;
    const removedMs = this.#endpoint?.removedMs ?? Infinity;
    if (nowMs - this.#activeMs >= (this.#isHalfClosed ? halfClosedMs : idleMs)) this.reset("idle");
    else if (nowMs - removedMs >= drainMs) this.reset("drained");
    else if (!this.#hasKeepAlive && this.#timer === undefined && this.#upstream !== undefined) {
      this.#hasKeepAlive = true;
      for (const socket of [this.#client, this.#upstream]) socket.setKeepAlive(true, keepAliveMs);
    }
  }

  /** Connects to the next endpoint, or resets the client if there is none. */
  #connectNext(): void {
    const { balancer, set, address } = this.#admitted;
    if (this.#endpoint !== undefined) {
      this.#tried.push(this.#endpoint);
      if (this.#tried.length >= connectAttempts) return void this.reset("connect-failed");
      balancer.traffic.retries++;
    }
    this.#endpoint = balancer.choose(set, address, performance.now(), this.#tried);
    // If the set is empty, its last endpoint was removed after the connection was accepted.
    if (this.#endpoint === undefined) this.reset(balancer.has(set) ? "loop" : "connect-failed");
    else if (!this.#client.destroyed) this.#connect(this.#endpoint);
  }

  #connect(to: BalancedEndpoint): void {
    const { shared } = this.#context.buffers;
    const upstream = new Socket({
      allowHalfOpen: true,
      onread: { buffer: shared, callback: (length, memory) => this.#toClient(length, memory) },
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
      if (isConnected) this.#onClose();
      else if (this.#end === undefined) {
        clearTimeout(this.#timer);
        this.#upstream = undefined;
        this.#connectNext();
      }
    });
    this.#timer = setTimeout(
      () => {
        // Node.js runs timers before socket events. After a long turn of the event loop, the connection may have been
        // accepted in the meantime, so wait for one more turn.
        this.#timer = setTimeout(() => upstream.destroy());
      },
      connectTimeoutMs * 2 ** this.#tried.length,
    );
    upstream.connect({ host: to.address, port: to.port });
  }

  #relay(upstream: Socket): void {
    const client = this.#client;
    const { traffic } = this.#admitted.balancer;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#openSockets++;
    if (client.destroyed) {
      this.reset("client-reset");
      return;
    }
    upstream.setNoDelay(true);
    client.on("data", (data: Buffer) => {
      this.#bytes += data.length;
      traffic.bytesFromClients += data.length;
      this.#context.garbage.add(data.length);
      if (!upstream.write(data)) client.pause();
    });
    upstream.on("drain", () => client.resume());
    const endOf = (other: Socket) => (): void => {
      this.#isHalfClosed = true;
      this.#activeMs = performance.now();
      other.end();
    };
    client.once("end", endOf(upstream));
    upstream.once("end", endOf(client));
    client.resume();
  }

  /** Returns false if the endpoint must not be read until the client has taken the data. */
  #toClient(length: number, memory: Uint8Array): boolean {
    const client = this.#client;
    const { buffers } = this.#context;
    this.#bytes += length;
    this.#admitted.balancer.traffic.bytesToClients += length;
    const buffer = buffers.take();
    buffer.set(memory.subarray(0, length));
    client.write(buffer.subarray(0, length), () => {
      buffers.giveBack(buffer);
      if (!isTaken) this.#upstream?.resume();
    });
    // Node.js calls the kernel within `write`, and its callback later; data that the kernel has taken is not counted.
    const isTaken = client.writableLength === 0;
    return isTaken;
  }

  #onClose(): void {
    if (--this.#openSockets > 0) return;
    const { open, limit } = this.#context;
    if (!open.delete(this)) return;
    const { address, balancer } = this.#admitted;
    const { traffic } = balancer;
    clearTimeout(this.#timer);
    limit.release(traffic, address);
    traffic.end(this.#end ?? "closed");
  }
}

function resetSocket(socket: Socket): void {
  // A socket that is still connecting has no peer to reset, and Node.js would wait for the connection.
  if (socket.connecting) socket.destroy();
  else if (!socket.destroyed) socket.resetAndDestroy();
}
