import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { retryLaterError } from "@kpng/process/connection/reconnect.ts";
import { addCounter, addGauge } from "@kpng/process/health/metrics.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Counter, Registry } from "prom-client";
import type { Rights } from "../identity/rights.ts";
import { Rate, type Refusals } from "./limits.ts";

/** Timing of the connections that clients open to a watcher, in milliseconds; tests shorten the times. */
export interface ConnectionTimes {
  readonly keepalive?: KeepaliveOptions | undefined;
  /**
   * Time after which a connection without a running call is closed. A call counts once its request has arrived. Default
   * 90 000.
   */
  readonly idleMs?: number | undefined;
  /** Age at which a client is asked to reconnect, varied by up to 10 % per connection. 0 is never. Default 1 800 000. */
  readonly maxAgeMs?: number | undefined;
  /** Shortest interval between two requests to reconnect because of age. Default 1 000. */
  readonly ageIntervalMs?: number | undefined;
  /** Longest time for which a client may read nothing while more output waits than its stream buffers. Default 60 000. */
  readonly writeTimeoutMs?: number | undefined;
  /** Longest time for draining connections when the watcher stops. 0 closes them at once. Default 10 000. */
  readonly drainMs?: number | undefined;
}

/** When an HTTP/2 connection counts as dead. */
export interface KeepaliveOptions {
  /** Time between pings, in milliseconds. Default 30 000; gRPC's `keepalive_time_ms`. */
  readonly intervalMs?: number | undefined;
  /** Longest wait for the reply to a ping, in milliseconds. Default 20 000; gRPC's `keepalive_timeout_ms`. */
  readonly timeoutMs?: number | undefined;
}

/** Default time between pings, in milliseconds. */
export const standardPingMs = 30_000;

const endReasons = ["age", "drain", "idle", "silent", "stale"] as const;

/** Why the watcher ended a connection; values of the label `reason` of kpng_connections_ended_total. */
type EndReason = (typeof endReasons)[number];

/** Default wait for a sign of life after a ping, in milliseconds. */
const standardTimeoutMs = 20_000;

/**
 * Calls that a connection may begin at once, and then per second; beyond it, the connection ends. A node or a relay
 * begins one or two. The pages of a long list are one call each, and proxies carry the calls of many clients on a
 * connection. A call that ends at once takes 0.2 ms.
 */
const [callBurst, callsPerSecond] = [500, 100];

/**
 * Bytes of Watch requests that a connection may send at once, and per second after that; the watcher then reads no more
 * for a while. 8 KiB take up to 0.4 ms to decode.
 *
 * A proxy may carry the streams of a hundred nodes on one connection. When they resume, each sends 8 KiB at once; later
 * each sends only acknowledgements.
 */
const [burstBytes, bytesPerSecond] = [1_024 * 1_024, 256 * 1_024];

/** A connection of a client. Times are those of the clock of {@link Connections}. */
export class Connection {
  readonly session: ServerHttp2Session;
  readonly rights: Rights;
  /** Aborts when the client is asked to reconnect. Waiting calls end; a batch that is being written is completed. */
  readonly leaving = new AbortController();
  /** The rate of Watch requests, in bytes. */
  readonly requestRate = new Rate(burstBytes, bytesPerSecond);
  readonly callRate = new Rate(callBurst, callsPerSecond);
  /** False for a client that has no other replica to move to: one of the unix socket. */
  readonly isMovable: boolean;
  readonly calls = new Map<ServerHttp2Stream, CallTimes>();
  bytesRead = 0;
  /** When data arrived last. */
  heardAtMs: number;
  /** When a call was in progress last. */
  busyAtMs: number;
  /** When the next ping is due. */
  pingAtMs = 0;
  /** When the connection reaches its maximum age. */
  moveAtMs = Number.POSITIVE_INFINITY;

  constructor(session: ServerHttp2Session, rights: Rights, isMovable: boolean, nowMs: number) {
    this.session = session;
    this.rights = rights;
    this.isMovable = isMovable;
    this.heardAtMs = nowMs;
    this.busyAtMs = nowMs;
  }
}

interface CallTimes {
  /** Since when the output has waited; infinity if it does not. */
  fullSinceMs: number;
  /** When the answered call ends, although its client has not ended its side. */
  closeAtMs: number;
}

/**
 * The open connections of a server. It ends connections that are silent or idle and calls whose client does not read,
 * asks clients of old connections to reconnect, and drains all connections one after the other when the watcher stops.
 * Whether a connection or a call may begin is decided before, by `Admission`.
 *
 * All connections are checked at each tick of a clock that stops while the event loop is blocked. After a turn that took
 * ten seconds, Node.js runs the timers that became due before it reads sockets; a timeout would then end clients whose
 * data has already arrived. The clock counts at most two ticks per turn, and sockets are read between any two ticks.
 *
 * *Bound:* one entry per connection and call. *Cost:* less than a millisecond per tick for 5 000 connections.
 */
export class Connections {
  readonly #times: ConnectionTimes;
  readonly #log: Log;
  readonly #ended: Counter<"reason">;
  readonly #refusals: Refusals;
  readonly #open = new Set<Connection>();
  readonly #bySession = new WeakMap<object, Connection>();
  /** Queue of clients to ask to reconnect, one every {@link ConnectionTimes.ageIntervalMs}, with the reason. */
  readonly #moving = new Map<Connection, "age" | "stale">();
  readonly #closed = new Wakeup();
  readonly #tickMs: number;
  #ticking: NodeJS.Timeout | undefined;
  #nowMs = 0;
  #tickedAtMs = 0;
  #movedAtMs = Number.NEGATIVE_INFINITY;
  #isDraining = false;

  constructor(times: ConnectionTimes, log: Log, registry: Registry, refusals: Refusals) {
    const { keepalive = {}, idleMs, maxAgeMs, ageIntervalMs, writeTimeoutMs } = times;
    const { intervalMs, timeoutMs } = keepalive;
    const all = [intervalMs, timeoutMs, idleMs, maxAgeMs || undefined, ageIntervalMs, writeTimeoutMs];
    // At least four ticks within the shortest time, which matters for the short times of tests.
    this.#tickMs = Math.max(5, Math.min(1_000, ...all.map((ms = 4_000) => ms / 4)));
    this.#times = times;
    this.#log = log;
    this.#refusals = refusals;
    addGauge(registry, "kpng_connections", "Open connections of clients", () => this.#open.size);
    const endedHelp = "Connections that the watcher ended, by reason";
    this.#ended = addCounter(registry, "kpng_connections_ended_total", endedHelp, "reason", endReasons);
  }

  /** Starts the clock, which does not keep the process alive. */
  start(): void {
    this.#tickedAtMs = performance.now();
    this.#ticking = setInterval(() => this.#tick(), this.#tickMs).unref();
  }

  stop(): void {
    clearInterval(this.#ticking);
  }

  addSession(session: ServerHttp2Session, rights: Rights, isMovable: boolean): void {
    // Unknown when the session has ended.
    const { remoteAddress: peer = "" } = session.socket;
    session.on("error", (error: NodeJS.ErrnoException) => {
      const reason = reasonOf(error);
      if (protocolErrors.has(error.code ?? "")) this.#refusals.add("protocol", peer, { reason });
      else this.#log.debug("session failed", { reason });
    });
    const connection = new Connection(session, rights, isMovable, this.#nowMs);
    const { maxAgeMs = 1_800_000, keepalive = {} } = this.#times;
    const { intervalMs = standardPingMs } = keepalive;
    // A random first delay, so that thousands of clients that connected in the same second are not pinged together.
    connection.pingAtMs = this.#nowMs + intervalMs * (0.5 + Math.random() / 2);
    if (isMovable && maxAgeMs > 0) connection.moveAtMs = this.#nowMs + maxAgeMs * (0.9 + 0.2 * Math.random());
    this.#open.add(connection);
    this.#bySession.set(session, connection);
    session.once("close", () => {
      this.#open.delete(connection);
      this.#moving.delete(connection);
      this.#closed.wake();
    });
    if (this.#isDraining) this.#leave(connection, "drain");
  }

  /** Registers a call, and returns its connection; undefined if that has ended. */
  began(stream: ServerHttp2Stream): Connection | undefined {
    const { session } = stream;
    const connection = session === undefined || session.destroyed ? undefined : this.#bySession.get(session);
    if (connection === undefined) return undefined;
    const { calls, leaving } = connection;
    const times: CallTimes = { fullSinceMs: Number.POSITIVE_INFINITY, closeAtMs: Number.POSITIVE_INFINITY };
    calls.set(stream, times);
    stream.once("finish", () => {
      // Not at once, because clients that receive both together discard the trailers of the response. A tick that waited
      // for the work of this call comes at once, and adds up to two ticks to the clock.
      times.closeAtMs = this.#nowMs + 2 * this.#tickMs + answeredMs;
    });
    stream.once("close", () => {
      calls.delete(stream);
      if (leaving.signal.aborted) connection.session.close();
    });
    return connection;
  }

  /**
   * Asks the clients of all current connections to reconnect, one after the other, because the state of this watcher
   * may be out of date. Connections that are opened later stay: their clients found no better watcher.
   */
  moveAll(): void {
    for (const connection of this.#open) {
      if (connection.isMovable && !this.#moving.has(connection)) this.#moving.set(connection, "stale");
    }
  }

  /** Asks all connections to close, one after the other. Resolves when all are closed or the time is over. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { drainMs = 10_000 } = this.#times;
    const waiting = [...this.#open];
    // Less than the whole time, because the last connections need time to close, too.
    const perStep = Math.ceil((waiting.length * drainStepMs) / (drainMs * 0.8));
    const leaveSome = (): void => {
      for (const connection of waiting.splice(0, perStep)) this.#leave(connection, "drain");
    };
    leaveSome();
    const leaving = setInterval(leaveSome, drainStepMs);
    await this.gone(AbortSignal.timeout(drainMs));
    clearInterval(leaving);
  }

  /** Resolves when all connections are closed, or when `signal` aborts. */
  async gone(signal: AbortSignal): Promise<void> {
    while (this.#open.size > 0 && !signal.aborted) await this.#closed.wait(signal);
  }

  /** Ends all calls that wait, and closes each connection after its last call. */
  closeAll(): void {
    for (const { session, leaving } of this.#open) {
      session.close();
      leaving.abort(retryLaterError(leaveMessages.drain, 0));
    }
  }

  destroyAll(): void {
    for (const { session } of this.#open) session.destroy();
  }

  #tick(): void {
    const nowMs = performance.now();
    this.#nowMs += Math.min(nowMs - this.#tickedAtMs, 2 * this.#tickMs);
    this.#tickedAtMs = nowMs;
    for (const connection of this.#open) {
      if (!connection.session.destroyed) this.#check(connection);
    }
    const [next] = this.#moving;
    if (next === undefined || this.#nowMs - this.#movedAtMs < (this.#times.ageIntervalMs ?? 1_000)) return;
    const [connection, reason] = next;
    this.#moving.delete(connection);
    this.#movedAtMs = this.#nowMs;
    this.#leave(connection, reason);
  }

  #check(connection: Connection): void {
    const { idleMs = 90_000 } = this.#times;
    const nowMs = this.#nowMs;
    this.#checkCalls(connection);
    if (nowMs - connection.busyAtMs >= idleMs) this.#end(connection, "idle");
    else this.#checkLife(connection);
    if (nowMs < connection.moveAtMs) return;
    connection.moveAtMs = Number.POSITIVE_INFINITY;
    if (!this.#moving.has(connection)) this.#moving.set(connection, "age");
  }

  #checkCalls(connection: Connection): void {
    const { writeTimeoutMs = 60_000 } = this.#times;
    const nowMs = this.#nowMs;
    for (const [call, times] of connection.calls) {
      if (call.readableDidRead || call.readableEnded) connection.busyAtMs = nowMs;
      if (nowMs >= times.closeAtMs) call.close();
      if (!call.writableNeedDrain) continue;
      if (times.fullSinceMs === Number.POSITIVE_INFINITY) {
        times.fullSinceMs = nowMs;
        call.once("drain", () => {
          times.fullSinceMs = Number.POSITIVE_INFINITY;
        });
      } else if (nowMs - times.fullSinceMs >= writeTimeoutMs) {
        this.#refusals.add("unread", connection.session.socket?.remoteAddress ?? "");
        call.close(constants.NGHTTP2_CANCEL);
        // Its writes never complete, and closing waits for them.
        call.destroy();
      }
    }
  }

  /**
   * Pings the client, and ends the connection when it no longer answers: a node that lost its power never closes its
   * connection, and its subscription would last indefinitely. A client that sends anything counts as alive: on a slow
   * link, the reply may be queued for minutes behind other data.
   */
  #checkLife(connection: Connection): void {
    const { session } = connection;
    const { intervalMs = standardPingMs, timeoutMs = standardTimeoutMs } = this.#times.keepalive ?? {};
    if (session.destroyed) return;
    const { bytesRead = connection.bytesRead } = session.socket ?? {};
    if (bytesRead !== connection.bytesRead) {
      connection.bytesRead = bytesRead;
      connection.heardAtMs = this.#nowMs;
    }
    if (this.#nowMs - connection.heardAtMs >= intervalMs + timeoutMs) this.#end(connection, "silent");
    else if (this.#nowMs >= connection.pingAtMs) {
      connection.pingAtMs = this.#nowMs + intervalMs;
      session.ping(() => undefined);
    }
  }

  #leave(connection: Connection, reason: keyof typeof leaveMessages): void {
    if (!this.#open.has(connection) || connection.leaving.signal.aborted) return;
    this.#ended.inc({ reason });
    // GOAWAY comes first, so that the client does not open its next stream on this connection.
    connection.session.close();
    connection.leaving.abort(retryLaterError(leaveMessages[reason], 0));
  }

  #end(connection: Connection, reason: EndReason): void {
    this.#ended.inc({ reason });
    connection.session.destroy();
  }
}

/** Messages for clients that are asked to reconnect, by reason. */
const leaveMessages = {
  age: "maximum connection age reached",
  stale: "the state of the watcher may be out of date",
  drain: "the watcher stops",
} as const;

/** Time between two connections, or groups of many, that are asked to close during a drain, in milliseconds. */
const drainStepMs = 50;

/** Codes of errors with which Node.js and nghttp2 end the connection of a client that breaks their rules. */
const protocolErrors: ReadonlySet<string> = new Set(["ERR_HTTP2_ERROR", "ERR_HTTP2_TOO_MANY_INVALID_FRAMES"]);

/**
 * Longest time for a TLS handshake, in milliseconds. Long, because this Node.js timer also counts time in which the
 * event loop is blocked.
 */
export const handshakeMs = 30_000;

/** How long a client may keep a stream open after its response, in milliseconds and up to three ticks more. */
const answeredMs = 1_000;
