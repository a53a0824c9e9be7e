import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { retryLaterError } from "@kpng/process/connection/reconnect.ts";
import { addCounter, addGauge } from "@kpng/process/health/metrics.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Counter, Registry } from "prom-client";
import type { Rights } from "../identity/rights.ts";
import { Rate, type Refusals } from "./limits.ts";

export interface ConnectionTimes {
  /** Time between pings, in milliseconds. Default 30 000; gRPC's `keepalive_time_ms`. */
  readonly pingMs?: number | undefined;
  /** Maximum wait for the reply to a ping, in milliseconds. Default 20 000; gRPC's `keepalive_timeout_ms`. */
  readonly pongMs?: number | undefined;
  /** Time after which a connection without a call, whose request must have arrived, is closed. Default 90 000. */
  readonly idleMs?: number | undefined;
  /** Age at which a client is asked to reconnect, ± 10 % at random; 0 for never. Default 1 800 000. */
  readonly maxAgeMs?: number | undefined;
  /** Minimum interval between two requests to reconnect. Default 1 000. */
  readonly ageIntervalMs?: number | undefined;
  /** Maximum time for which a client may read nothing while its stream's buffer is full. Default 60 000. */
  readonly writeTimeoutMs?: number | undefined;
  /** Maximum time for a drain, 2 s less than the pod's grace period; 0 closes connections at once. Default 10 000. */
  readonly drainMs?: number | undefined;
}

export const standardPingMs = 30_000;

const endReasons = ["age", "drain", "idle", "silent", "stale"] as const;

/** Why the watcher ended a connection; values of the label `reason` of kpng_connections_ended_total. */
type EndReason = (typeof endReasons)[number];

/**
 * Number of calls that a connection may begin in a burst, and per second after that. Each page of a list is a call, and
 * a proxy carries the calls of many clients. A call that ends immediately takes 0.2 ms.
 */
const [callBurst, callsPerSecond] = [500, 100];

/**
 * Bytes of Watch requests that a connection may send in a burst, and per second after that. Beyond this rate, the
 * watcher pauses reading. Decoding 8 KiB takes up to 0.4 ms. A proxy may carry a hundred nodes, each of which sends 8
 * KiB to resume.
 */
const [burstBytes, bytesPerSecond] = [1_024 * 1_024, 256 * 1_024];

/** The state of one connection. Its times are by the clock of {@link Connections}, in milliseconds. */
export class Connection {
  readonly session: ServerHttp2Session;
  readonly rights: Rights;
  /**
   * Aborts when the client is asked to reconnect. The client's calls then end after the batch that is being written.
   */
  readonly leaving = new AbortController();
  readonly requestRate = new Rate(burstBytes, bytesPerSecond);
  readonly callRate = new Rate(callBurst, callsPerSecond);
  /** False for clients of the unix socket, which have no other replica to move to. */
  readonly isMovable: boolean;
  readonly calls = new Map<ServerHttp2Stream, CallTimes>();
  bytesRead = 0;
  /** When data last arrived. */
  heardAtMs: number;
  /** When a call with a request was last in progress. */
  busyAtMs: number;
  /** When the next ping is due. */
  pingAtMs = 0;
  /** When the client is to be asked to reconnect because of the connection's age; infinity for never. */
  moveAtMs = Number.POSITIVE_INFINITY;

  constructor(session: ServerHttp2Session, rights: Rights, isMovable: boolean, nowMs: number) {
    this.session = session;
    this.rights = rights;
    this.isMovable = isMovable;
    this.heardAtMs = nowMs;
    this.busyAtMs = nowMs;
  }
}

/** Times of a call, by the clock of {@link Connections}. */
interface CallTimes {
  /** Time since which the output buffer has been full; infinity if it is not full. */
  fullSinceMs: number;
  /** Time at which to close an answered call even if its client has not ended its side. */
  closeAtMs: number;
}

/**
 * The open connections of a server. This class ends silent and idle connections, and calls whose client does not read;
 * it asks clients of old connections to reconnect, and drains all connections when the watcher stops.
 *
 * The clock of this class stops while the event loop is blocked. After a blocking turn, Node.js runs due timers before
 * it reads sockets, so timeouts would end connections whose data has already arrived. The clock therefore advances by
 * at most two ticks per turn, and sockets are read between any two turns.
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
  /** Clients to be asked to reconnect, one every {@link ConnectionTimes.ageIntervalMs}. */
  readonly #moving = new Map<Connection, "age" | "stale">();
  readonly #closed = new Wakeup();
  readonly #tickMs: number;
  #ticking: NodeJS.Timeout | undefined;
  #nowMs = 0;
  #tickedAtMs = 0;
  #movedAtMs = Number.NEGATIVE_INFINITY;
  #isDraining = false;

  constructor(times: ConnectionTimes, log: Log, registry: Registry, refusals: Refusals) {
    const { pingMs, pongMs, idleMs, maxAgeMs, ageIntervalMs, writeTimeoutMs } = times;
    const all = [pingMs, pongMs, idleMs, maxAgeMs || undefined, ageIntervalMs, writeTimeoutMs];
    // Tests use shorter times; even the shortest must last at least four ticks.
    this.#tickMs = Math.max(5, Math.min(1_000, ...all.map((ms = 4_000) => ms / 4)));
    this.#times = times;
    this.#log = log;
    this.#refusals = refusals;
    addGauge(registry, "kpng_connections", "Open connections of clients", () => this.#open.size);
    const endedHelp = "Connections that the watcher ended, by reason";
    this.#ended = addCounter(registry, "kpng_connections_ended_total", endedHelp, "reason", endReasons);
  }

  start(): void {
    this.#tickedAtMs = performance.now();
    this.#ticking = setInterval(() => this.#tick(), this.#tickMs).unref();
  }

  stop(): void {
    clearInterval(this.#ticking);
  }

  addSession(session: ServerHttp2Session, rights: Rights, isMovable: boolean): void {
    const { remoteAddress: peer = "" } = session.socket;
    session.on("error", (error: NodeJS.ErrnoException) => {
      const reason = reasonOf(error);
      if (protocolErrors.has(error.code ?? "")) this.#refusals.add("protocol", peer, { reason });
      else this.#log.debug("session failed", { reason });
    });
    const connection = new Connection(session, rights, isMovable, this.#nowMs);
    const { maxAgeMs = 1_800_000, pingMs = standardPingMs } = this.#times;
    // The first delay is random, so that thousands of clients that connected in the same second are not pinged
    // together.
    connection.pingAtMs = this.#nowMs + pingMs * (0.5 + Math.random() / 2);
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

  /** Registers a call and returns its connection; undefined if the connection has ended. */
  began(stream: ServerHttp2Stream): Connection | undefined {
    const { session } = stream;
    const connection = session === undefined || session.destroyed ? undefined : this.#bySession.get(session);
    if (connection === undefined) return undefined;
    const { calls, leaving } = connection;
    const times: CallTimes = { fullSinceMs: Number.POSITIVE_INFINITY, closeAtMs: Number.POSITIVE_INFINITY };
    calls.set(stream, times);
    stream.once("finish", () => {
      // A client that receives the trailers and the close together discards the trailers. The next tick may be overdue
      // and may then advance the clock by up to two ticks.
      times.closeAtMs = this.#nowMs + 2 * this.#tickMs + answeredMs;
    });
    stream.once("close", () => {
      calls.delete(stream);
      if (leaving.signal.aborted) connection.session.close();
    });
    return connection;
  }

  /**
   * Asks the clients of all current connections to reconnect, because this watcher is stale. A client that connects
   * later has found no better watcher, so it stays.
   */
  moveAll(): void {
    for (const connection of this.#open) {
      if (connection.isMovable && !this.#moving.has(connection)) this.#moving.set(connection, "stale");
    }
  }

  /** Lets the clients stay that {@link moveAll} has not asked yet, because this watcher is current again. */
  stay(): void {
    for (const [connection, reason] of this.#moving) if (reason === "stale") this.#moving.delete(connection);
  }

  /** Asks clients to leave, one after another. Resolves when all of them have left or the time has run out. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { drainMs = 10_000 } = this.#times;
    const undrained = [...this.#open];
    // Reserves a fifth of the time for the last connections to close.
    const perStep = Math.ceil((undrained.length * drainStepMs) / (drainMs * 0.8));
    const leaveSome = (): void => {
      for (const connection of undrained.splice(0, perStep)) this.#leave(connection, "drain");
    };
    leaveSome();
    const leaving = setInterval(leaveSome, drainStepMs);
    await this.gone(AbortSignal.timeout(drainMs));
    clearInterval(leaving);
  }

  async gone(signal: AbortSignal): Promise<void> {
    while (this.#open.size > 0 && !signal.aborted) await this.#closed.wait(signal);
  }

  /** Asks all clients to reconnect, and closes each connection after its last call. */
  closeAll(): void {
    for (const connection of this.#open) this.#leave(connection, "drain");
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
      // A call whose client sends no request does not keep its connection open.
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
        // Closing alone would wait for the call's writes, which never complete.
        call.destroy();
      }
    }
  }

  /**
   * Pings the client, and ends the connection if nothing arrives, because a node that loses power never closes it. Any
   * data counts as a reply, because on a slow link the reply may wait for minutes behind other data.
   */
  #checkLife(connection: Connection): void {
    const { session } = connection;
    const { pingMs = standardPingMs, pongMs = 20_000 } = this.#times;
    const { bytesRead = connection.bytesRead } = session.socket ?? {};
    if (bytesRead !== connection.bytesRead) {
      connection.bytesRead = bytesRead;
      connection.heardAtMs = this.#nowMs;
    }
    if (this.#nowMs - connection.heardAtMs >= pingMs + pongMs) this.#end(connection, "silent");
    else if (this.#nowMs >= connection.pingAtMs) {
      connection.pingAtMs = this.#nowMs + pingMs;
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

const leaveMessages = {
  age: "maximum connection age reached",
  stale: "the state of the watcher may be out of date",
  drain: "the watcher is stopping",
} as const;

/** Interval between the steps of a drain, in milliseconds. */
const drainStepMs = 50;

/** Errors of sessions whose client violates HTTP/2. Other errors are lost connections. */
const protocolErrors: ReadonlySet<string> = new Set(["ERR_HTTP2_ERROR", "ERR_HTTP2_TOO_MANY_INVALID_FRAMES"]);

/** Maximum duration of a TLS handshake, in milliseconds, including any time during which the event loop is blocked. */
export const handshakeMs = 30_000;

/** Time for which a client may keep a stream open after the response, in milliseconds. Up to three ticks are added. */
const answeredMs = 1_000;
