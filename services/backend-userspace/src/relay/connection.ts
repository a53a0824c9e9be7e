import { Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { EndpointSetName } from "@kpng/service-plan/service-plan.ts";
import type { BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { ConnectionEnd, TrafficLimit } from "../traffic/service-traffic.ts";

const size = 65_536;

/**
 * The memory that all connections to endpoints read into. A connection reads, and writes to its client at once. Only if
 * the client's kernel buffer did not take everything, the memory stays with that write, and the next read gets new
 * memory. So the usual read allocates nothing.
 */
export class ReadBuffer {
  #buffer = Buffer.allocUnsafeSlow(size);

  /** The memory for the next read. */
  readonly current = (): Buffer => this.#buffer;

  /** Says that a write still refers to the current memory. */
  replace(): void {
    this.#buffer = Buffer.allocUnsafeSlow(size);
  }
}

const collectAfterBytes = 4 * 1_048_576;

/** The function `gc` of V8 (`--expose-gc`). */
type Collect = (options: { readonly type: "minor" }) => void;

/**
 * The memory of data from clients, which becomes garbage as soon as it is written. Collects it after each 4 MiB, by a
 * collection of V8's young generation alone.
 *
 * Node.js reads an accepted socket into 64 KiB of new memory each time, outside of V8's heap. Its young generation
 * holds only the small objects that own the memory and therefore never fills up; instead, V8 collects the whole heap
 * after each 40 MiB, which took more than a third of the CPU time of an upload
 * (docs/design/userspace.md).
 */
export class ReadGarbage {
  readonly #collect = findCollect();
  #bytes = 0;

  /** Notes that so many bytes were read into memory of their own. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < collectAfterBytes) return;
    this.#bytes = 0;
    this.#collect({ type: "minor" });
  }
}

/** Returns V8's function `gc`. The context of this process does not get it. */
function findCollect(): Collect {
  // The function is defined in contexts that are created after the flag is set.
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc");
}

/** Time limit of the first attempt to connect, in milliseconds; it doubles with each further attempt. */
const connectTimeoutMs = 250;

const connectAttempts = 4;

/** State that all connections of the process share. */
export interface RelayContext {
  readonly limit: TrafficLimit;
  /** The open connections, for `sweep`. */
  readonly open: Set<Connection>;
  readonly buffer: ReadBuffer;
  /** Is told of all data from clients, which has memory of its own. */
  readonly garbage: ReadGarbage;
}

/** A client that was let through, and where it may go. */
export interface Admitted {
  /** Address of the client. */
  readonly address: string;
  readonly balancer: Balancer;
  readonly set: EndpointSetName;
}

/**
 * A client's connection and the one to its endpoint. It outlives the listener that accepted it: it ends by itself or by
 * `sweep`.
 *
 * Problem: one process with one event loop carries all connections of a node. It must pass on ends, resets and
 * backpressure as if client and endpoint were connected directly, must not buffer what a slow reader leaves, and its
 * CPU time goes into what is done for each piece of data.
 *
 * ```text
 * client ─► listener ─► Gate (source range, policy) ─► Connection
 *                                                         │ Balancer.choose ─► 10.1.0.7:8080, no answer in 250 ms
 *                                                         │ Balancer.choose ─► 10.1.0.8:8080, connected
 * data of the client:    "data" event            ─► upstream.write; if false, client.pause until "drain"
 * data of the endpoint:  onread into ReadBuffer  ─► client.write; if false, not read until "drain"
 * ```
 *
 * States:
 *
 * 1. Connecting: nothing is read from the client. The balancer chooses an endpoint; after an attempt that fails, it
 *    chooses another one, and the time limit doubles (250, 500, 1 000, 2 000 ms). After the fourth, the client is
 *    reset.
 * 2. Relaying: each side is read only while the other side takes the data, so a slow reader holds back its own sender
 *    and at most two pieces of 64 KiB wait in each direction. An end of data is passed on and the other direction goes
 *    on; a reset is passed on as a reset.
 * 3. Closed when both sockets are. The place in the limit is free from then on.
 *
 * Invariants: a changed plan affects only later calls of `Balancer.choose`; an open connection stays with its endpoint
 * until it ends, is idle too long, or `drainMs` has passed since the endpoint was removed. At the end of the process
 * connections are reset: an end of data would pass for the end of a complete answer.
 *
 * What keeps it cheap, as measured (docs/design/userspace.md):
 *
 * - Data from endpoints is read into one shared buffer. Node.js offers this (`onread`) only for sockets that connect;
 *   an accepted socket allocates 64 KiB for each read, and `ReadGarbage` collects that memory.
 * - No timers per connection: each piece of data would have to restart one. A sweep compares byte counts.
 * - Counters are fields; a metric with labels costs a microsecond for each piece.
 *
 * Rejected: workers that share the listening sockets (no more short connections per second, 20 % more CPU time, and
 * limits and affinity that would have to be shared); passing accepted connections to children; SO_REUSEPORT (queued
 * connections are lost when a listener closes).
 */
export class Connection {
  readonly #client: Socket;
  readonly #admitted: Admitted;
  readonly #context: RelayContext;
  #upstream: Socket | undefined;
  /** The endpoint that was chosen last. */
  #endpoint: BalancedEndpoint | undefined;
  /** The endpoint that counts this connection as open. */
  #counted: BalancedEndpoint | undefined;
  /** Endpoints to which an attempt to connect has failed. */
  readonly #tried: BalancedEndpoint[] = [];
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

  /** Begins to connect. The connection's place in `context.limit` must be taken already. */
  constructor(client: Socket, admitted: Admitted, context: RelayContext) {
    this.#client = client;
    this.#admitted = admitted;
    this.#context = context;
    context.open.add(this);
    client.on("error", () => this.reset("client-reset"));
    client.once("close", () => this.#onClose());
    this.#connectNext();
  }

  /** When the endpoint left the plan, in milliseconds; undefined if it did not. */
  get removedMs(): number | undefined {
    return this.#endpoint?.removedMs;
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
  countIdleSweep(): number {
    this.#idleSweeps = this.#bytes === this.#seenBytes ? this.#idleSweeps + 1 : 0;
    this.#seenBytes = this.#bytes;
    if (!this.#hasKeepAlive && this.#timer === undefined && this.#upstream !== undefined) {
      this.#hasKeepAlive = true;
      for (const socket of [this.#client, this.#upstream]) socket.setKeepAlive(true, keepAliveMs);
    }
    return this.#idleSweeps;
  }

  #connectNext(): void {
    const next = this.#choose();
    if (typeof next === "string") this.reset(next);
    else if (!this.#client.destroyed) this.#connect(next);
  }

  /** Returns the endpoint for the next attempt to connect, or the reason why there is none. */
  #choose(): BalancedEndpoint | ConnectionEnd {
    const { balancer, set, address } = this.#admitted;
    if (this.#endpoint !== undefined) {
      this.#leaveEndpoint();
      this.#tried.push(this.#endpoint);
      if (this.#tried.length >= connectAttempts) return "connect-failed";
      balancer.traffic.retries++;
    }
    const endpoint = balancer.choose(set, address, performance.now(), this.#tried);
    // Without endpoints, the last one was removed after the connection was accepted.
    if (endpoint === undefined) return balancer.has(set) ? "loop" : "connect-failed";
    endpoint.open++;
    this.#endpoint = endpoint;
    this.#counted = endpoint;
    return endpoint;
  }

  #connect(to: BalancedEndpoint): void {
    const { buffer } = this.#context;
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
      if (isConnected) {
        this.#leaveEndpoint();
        this.#onClose();
      } else if (this.#end === undefined) {
        clearTimeout(this.#timer);
        this.#upstream = undefined;
        this.#connectNext();
      }
    });
    this.#timer = setTimeout(
      () => {
        // Timers precede events of sockets: after a long turn, the connection may have been accepted meanwhile.
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
    this.#admitted.balancer.traffic.bytesToClients += length;
    const isTaken = client.write(memory.subarray(0, length));
    if (client.writableLength > 0) this.#context.buffer.replace();
    return isTaken;
  }

  #leaveEndpoint(): void {
    if (this.#counted !== undefined) this.#counted.open--;
    this.#counted = undefined;
  }

  #onClose(): void {
    if (--this.#openSockets > 0) return;
    const { open, limit } = this.#context;
    if (!open.delete(this)) return;
    const { address, balancer } = this.#admitted;
    const { traffic } = balancer;
    clearTimeout(this.#timer);
    this.#leaveEndpoint();
    limit.release(traffic, address);
    traffic.end(this.#end ?? "closed");
  }
}

function resetSocket(socket: Socket): void {
  // A socket that is still connecting has no peer to reset, and Node.js would wait for the connection.
  if (socket.connecting) socket.destroy();
  else if (!socket.destroyed) socket.resetAndDestroy();
}

/** Time limits of connections. */
export interface SweepLimits {
  /** Time without data after which a connection is reset, in milliseconds; 0 for none. */
  readonly idleMs: number;
  /** The same for a connection of which one side has ended its data. */
  readonly halfClosedMs: number;
  /** Time after the removal of an endpoint at which its connections are reset, in milliseconds; 0 for none. */
  readonly drainMs: number;
}

const maxIntervalMs = 30_000;
const minIntervalMs = 50;
/** Idle time after which a peer is asked whether it still exists. */
const keepAliveMs = 120_000;

/**
 * Returns the time between two sweeps: a fifth of the smaller limit, so that limits are exceeded by at most that, from
 * 50 ms to 30 s.
 */
export function sweepIntervalMs({ idleMs, halfClosedMs, drainMs }: SweepLimits): number {
  const smallest = Math.min(...[idleMs, halfClosedMs, drainMs, maxIntervalMs * 5].filter((limit) => limit > 0));
  return Math.max(minIntervalMs, Math.min(maxIntervalMs, smallest / 5));
}

/**
 * Resets connections that reached a time limit. Must be called every `intervalMs`. Connections have no timers of their
 * own: each piece of data would have to restart one, and a periodic look at all connections costs less.
 */
export function sweep(open: Iterable<Connection>, limits: SweepLimits, intervalMs: number, nowMs: number): void {
  const { idleMs, halfClosedMs, drainMs } = limits;
  const sweepsOf = (limitMs: number): number => (limitMs === 0 ? Infinity : Math.ceil(limitMs / intervalMs));
  const [idleSweeps, halfClosedSweeps] = [sweepsOf(idleMs), sweepsOf(halfClosedMs)];
  for (const connection of open) {
    const count = connection.countIdleSweep();
    const { removedMs } = connection;
    if (count >= (connection.isHalfClosed ? halfClosedSweeps : idleSweeps)) connection.reset("idle");
    else if (drainMs > 0 && removedMs !== undefined && nowMs - removedMs >= drainMs) connection.reset("drained");
  }
}
