import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { type Clock, realClock } from "@kpng/process/clock.ts";
import { retryLaterError } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { Refusals } from "./limits.ts";
import { LoopClock } from "./loop-clock.ts";

/** Timing of the connections that clients open to a watcher, in milliseconds; tests shorten the times. */
export interface ConnectionTimes {
  readonly keepalive?: KeepaliveOptions | undefined;
  /**
   * Time after which a connection without a running call is closed; the check may take up to twice as long. A call
   * counts once its request has arrived. Default 90 000: longer than the delay after which a client retries when the
   * watcher is busy.
   */
  readonly idleMs?: number | undefined;
  /** Age at which a client is asked to reconnect, varied by up to 10 % per connection. 0 is never. Default 1 800 000. */
  readonly maxAgeMs?: number | undefined;
  /** Shortest interval between two requests to reconnect because of age. Default 1 000. */
  readonly ageIntervalMs?: number | undefined;
  /**
   * Longest time for which a client may read nothing while more output waits than its stream buffers; at most twice as
   * long passes. Default 60 000.
   */
  readonly writeTimeoutMs?: number | undefined;
  /** Time that the calls of a connection may take to end after the CA of its certificate was replaced. Default 10 000. */
  readonly oldCaMs?: number | undefined;
  /** Longest time for draining connections when the watcher stops. 0 closes them at once. Default 10 000. */
  readonly drainMs?: number | undefined;
  /** Clock of the drain. Unlike `LoopClock`, it also advances while the event loop is blocked. Default real time. */
  readonly drainClock?: Clock | undefined;
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

/** Metrics of connections. */
export interface ConnectionMetrics {
  readonly ended: Counter<"reason">;
}

/** Registers the metrics. `count` returns the number of open connections. */
export function makeConnectionMetrics(registry: Registry, count: () => number): ConnectionMetrics {
  const registers = [registry];
  new Gauge({
    name: "kpng_connections",
    help: "Open connections of clients",
    registers,
    collect() {
      this.set(count());
    },
  });
  const ended = new Counter({
    name: "kpng_connections_ended_total",
    help: "Connections that the watcher ended, by reason",
    labelNames: ["reason"],
    registers,
  });
  for (const reason of endReasons) ended.inc({ reason }, 0);
  return { ended };
}

const endReasons = ["age", "ca", "drain", "idle", "silent", "stale"] as const;

/** Why the watcher ended a connection; values of the label `reason` of kpng_connections_ended_total. */
type EndReason = (typeof endReasons)[number];

/** A connection of a client. */
interface Connection {
  readonly session: ServerHttp2Session;
  /** Aborts when the client is asked to reconnect. Waiting calls end; a batch that is being written is completed. */
  readonly leaving: AbortController;
  /** The streams of the calls in progress. */
  readonly calls: Set<ServerHttp2Stream>;
}

/**
 * The open connections of a server. It ends connections that are silent or idle and calls whose client does not read,
 * asks clients of old connections to reconnect, and drains all connections one after the other when the watcher stops.
 * Whether a connection or a call may begin is decided before, by `Admission`.
 *
 * *Bound:* one entry per connection.
 */
export class Connections {
  readonly clock: LoopClock;
  readonly #times: ConnectionTimes;
  readonly #log: Log;
  readonly #metrics: ConnectionMetrics;
  readonly #refusals: Refusals;
  readonly #open = new Set<Connection>();
  readonly #bySession = new WeakMap<ServerHttp2Session, Connection>();
  /** Connections whose clients can reconnect elsewhere. */
  readonly #movable = new Set<Connection>();
  /** Queue of clients to ask to reconnect, one every {@link ConnectionTimes.ageIntervalMs}, with the reason. */
  readonly #moving = new Map<Connection, "age" | "stale">();
  readonly #closed = new Wakeup();
  #isPaced = false;
  /** Connections over TLS whose handshake is not complete. */
  readonly #handshakes = new Map<string, Socket>();
  #isDraining = false;

  constructor(times: ConnectionTimes, log: Log, registry: Registry, refusals: Refusals) {
    const { keepalive = {}, idleMs, maxAgeMs, ageIntervalMs, writeTimeoutMs } = times;
    const all = [
      keepalive.intervalMs,
      keepalive.timeoutMs,
      idleMs,
      maxAgeMs || undefined,
      ageIntervalMs,
      writeTimeoutMs,
    ];
    // The clock ticks at least four times within the shortest time, which matters for the short times of tests.
    this.clock = new LoopClock(Math.max(5, Math.min(1_000, ...all.map((ms = 4_000) => ms / 4))));
    this.#times = times;
    this.#log = log;
    this.#refusals = refusals;
    this.#metrics = makeConnectionMetrics(registry, () => this.#open.size);
  }

  /** `hasAge` is false for a client that has no other replica to move to: one of the unix socket. */
  addSession(session: ServerHttp2Session, hasAge: boolean): void {
    // Unknown when the session has ended.
    const { remoteAddress: peer = "" } = session.socket;
    session.on("error", (error: NodeJS.ErrnoException) => {
      const reason = reasonOf(error);
      if (protocolErrors.has(error.code ?? "")) this.#refusals.add("protocol", peer, { reason });
      else this.#log.debug("session failed", { reason });
    });
    const connection: Connection = { session, leaving: new AbortController(), calls: new Set() };
    this.#open.add(connection);
    this.#bySession.set(session, connection);
    const cancels = [this.#endIdle(connection), this.#endUnread(connection), this.#endSilent(connection)];
    if (hasAge) this.#movable.add(connection);
    const { maxAgeMs = 1_800_000 } = this.#times;
    if (hasAge && maxAgeMs > 0) {
      const ageMs = maxAgeMs * (0.9 + 0.2 * Math.random());
      cancels.push(this.clock.after(ageMs, () => this.#move(connection, "age")));
    }
    session.once("close", () => {
      for (const cancel of cancels) cancel();
      this.#open.delete(connection);
      this.#movable.delete(connection);
      this.#moving.delete(connection);
      this.#closed.wake();
    });
    if (this.#isDraining) this.#leave(connection, "drain");
  }

  /** Registers a call. Returns a signal that aborts, with the error for the client, when the connection is to close. */
  began(stream: ServerHttp2Stream): AbortSignal {
    const connection = stream.session && this.#bySession.get(stream.session as ServerHttp2Session);
    // The connection was closed while the call arrived.
    if (connection === undefined) return AbortSignal.abort(retryLaterError("the connection was closed", 0));
    const { calls, leaving, session } = connection;
    calls.add(stream);
    this.#closeWhenAnswered(stream);
    stream.once("close", () => {
      calls.delete(stream);
      if (leaving.signal.aborted) session.close();
    });
    return leaving.signal;
  }

  /**
   * Asks the clients of all current connections to reconnect, one after the other, because the state of this watcher
   * may be out of date. Connections that are opened later stay: their clients found no better watcher.
   */
  moveAll(): void {
    for (const connection of this.#movable) this.#move(connection, "stale");
  }

  /** Cancels {@link moveAll} for the clients that it has not asked yet, because the state is current again. */
  stopMoving(): void {
    for (const [connection, reason] of this.#moving) if (reason === "stale") this.#moving.delete(connection);
  }

  /** Asks all connections to close, one after the other. Resolves when all are closed or the time is over. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { drainMs = 10_000, drainClock: clock = realClock } = this.#times;
    const startMs = clock.nowMs();
    const waiting = [...this.#open];
    // Less than the whole time, because the last connections need time to close, too.
    const stepMs = Math.min(maxDrainStepMs, (drainMs * 0.8) / waiting.length);
    const over = new AbortController();
    void clock.wait(drainMs, over.signal).then(() => over.abort());
    for (let asked = 0; asked < waiting.length && !over.signal.aborted; ) {
      const due = Math.floor((clock.nowMs() - startMs) / stepMs) + 1;
      for (const connection of waiting.slice(asked, due)) this.#leave(connection, "drain");
      asked = Math.max(asked, due);
      if (this.#open.size > 0) await clock.wait(stepMs, over.signal);
    }
    await this.gone(over.signal);
    // Ends the pending wait for the end of the time.
    over.abort();
  }

  /**
   * Registers a connection over TLS until {@link endedHandshake}. Its client is verified with the CA of the moment in
   * which it was accepted, so it is destroyed if the CA changes before it is known to have presented a certificate.
   */
  beganHandshake(socket: Socket): void {
    const address = addressOf(socket);
    this.#handshakes.set(address, socket);
    socket.once("close", () => {
      if (this.#handshakes.get(address) === socket) this.#handshakes.delete(address);
    });
  }

  /** The handshake of a connection is complete. `socket` is the one over TLS. */
  endedHandshake(socket: Socket): void {
    this.#handshakes.delete(addressOf(socket));
  }

  /**
   * Asks all connections whose client presented a certificate to close now, because the CA of client certificates
   * changed, and ends those that are still open a while later: a call without an end would keep the rights of a
   * certificate that is no longer trusted. Clients of a unix socket, and those with a token only, stay.
   */
  leaveForNewCa(): void {
    for (const socket of this.#handshakes.values()) socket.destroy();
    const old = [...this.#open].filter(hasCertificate);
    for (const connection of old) this.#leave(connection, "ca");
    this.clock.after(this.#times.oldCaMs ?? 10_000, () => {
      for (const connection of old) if (this.#open.has(connection)) connection.session.destroy();
    });
  }

  /** Resolves when all connections are closed, or when `signal` aborts. */
  async gone(signal: AbortSignal): Promise<void> {
    while (this.#open.size > 0 && !signal.aborted) await this.#closed.wait(signal);
  }

  closeAll(): void {
    for (const { session } of this.#open) session.close();
  }

  destroyAll(): void {
    for (const { session } of this.#open) session.destroy();
  }

  /** Ends the connection once it is idle. Returns a function that cancels this. */
  #endIdle(connection: Connection): () => void {
    const { idleMs = 90_000 } = this.#times;
    let cancel: () => void = () => undefined;
    const check = (wasBusy: boolean): void => {
      cancel = this.clock.after(idleMs, () => {
        const isBusy = [...connection.calls].some((call) => call.readableDidRead || call.readableEnded);
        if (wasBusy || isBusy) check(isBusy);
        else this.#end(connection, "idle");
      });
    };
    check(false);
    return () => cancel();
  }

  /** Ends calls whose output has waited since the last check. Returns a function that cancels this. */
  #endUnread({ calls, session }: Connection): () => void {
    const { writeTimeoutMs = 60_000 } = this.#times;
    let cancel: () => void = () => undefined;
    const full = new Set<ServerHttp2Stream>();
    const check = (): void => {
      for (const call of calls) {
        if (full.delete(call)) {
          this.#refusals.add("unread", session.socket?.remoteAddress ?? "");
          call.close(constants.NGHTTP2_CANCEL);
          // Its writes never complete, and closing waits for them.
          call.destroy();
        } else if (call.writableNeedDrain) {
          full.add(call);
          call.once("drain", () => full.delete(call));
        }
      }
      for (const call of full) if (!calls.has(call)) full.delete(call);
      cancel = this.clock.after(writeTimeoutMs, check);
    };
    cancel = this.clock.after(writeTimeoutMs, check);
    return () => cancel();
  }

  /**
   * Ends the connection when its client no longer answers pings: a node that lost its power never closes its
   * connection, and its subscription would last indefinitely. A client that sends anything counts as alive: on a slow
   * link, the reply may be queued for minutes behind other data. Returns a function that cancels this.
   */
  #endSilent(connection: Connection): () => void {
    const { session } = connection;
    const { socket } = session;
    const { intervalMs = standardPingMs, timeoutMs = 20_000 } = this.#times.keepalive ?? {};
    let cancel: () => void = () => undefined;
    const wait = (ms = intervalMs): void => {
      cancel = this.clock.after(ms, ping);
    };
    const awaitReply = (bytesRead: number): void => {
      cancel = this.clock.after(timeoutMs, () => {
        if (session.destroyed) return;
        if (socket.bytesRead === bytesRead) this.#end(connection, "silent");
        else awaitReply(socket.bytesRead);
      });
    };
    const ping = (): void => {
      if (session.destroyed) return;
      awaitReply(socket.bytesRead);
      // An error is not a reply: a closing session fails its pings, but may wait for its streams indefinitely.
      session.ping((error) => {
        if (error !== null || session.destroyed) return;
        cancel();
        wait();
      });
    };
    // A random first delay, so that thousands of clients that connected in the same second are not pinged together.
    wait(intervalMs * (0.5 + Math.random() / 2));
    return () => cancel();
  }

  /** Closes the stream some time after its response: a client that never ends its side would keep the connection. */
  #closeWhenAnswered(stream: ServerHttp2Stream): void {
    stream.once("finish", () => {
      // Not at once, because clients that receive both together discard the trailers of the response.
      const cancel = this.clock.after(answeredMs, () => stream.close());
      stream.once("close", cancel);
    });
  }

  #move(connection: Connection, reason: "age" | "stale"): void {
    // A connection that is too old must move even if the state becomes current again.
    if (reason === "age" || !this.#moving.has(connection)) this.#moving.set(connection, reason);
    if (!this.#isPaced) this.#moveNext();
  }

  #moveNext(): void {
    const [first] = this.#moving;
    this.#isPaced = first !== undefined;
    if (first === undefined) return;
    const [connection, reason] = first;
    this.#moving.delete(connection);
    this.#leave(connection, reason);
    this.clock.after(this.#times.ageIntervalMs ?? 1_000, () => this.#moveNext());
  }

  #leave(connection: Connection, reason: keyof typeof leaveMessages): void {
    if (!this.#open.has(connection) || connection.leaving.signal.aborted) return;
    this.#metrics.ended.inc({ reason });
    // GOAWAY comes first, so that the client does not open its next stream on this connection.
    connection.session.close();
    connection.leaving.abort(retryLaterError(leaveMessages[reason], 0));
  }

  #end(connection: Connection, reason: EndReason): void {
    this.#metrics.ended.inc({ reason });
    connection.session.destroy();
  }
}

/** Both ends of a TCP connection, which its socket and the one over TLS have in common. */
function addressOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

/** Messages for clients that are asked to reconnect, by reason. */
const leaveMessages = {
  age: "maximum connection age reached",
  stale: "the state of the watcher may be out of date",
  ca: "the CA of client certificates changed",
  drain: "the watcher stops",
} as const;

/** Longest time between two connections that are asked to close during a drain, in milliseconds. */
const maxDrainStepMs = 50;

/** Codes of errors with which Node.js and nghttp2 end the connection of a client that breaks their rules. */
const protocolErrors: ReadonlySet<string> = new Set(["ERR_HTTP2_ERROR", "ERR_HTTP2_TOO_MANY_INVALID_FRAMES"]);

/** How long a client may keep a stream open after its response, in milliseconds. */
const answeredMs = 1_000;

/** True if the client presented a certificate, whose CA may be replaced. */
function hasCertificate({ session }: Connection): boolean {
  // The socket of a destroyed session cannot be used.
  if (session.destroyed) return false;
  const socket: Socket & Partial<Pick<TLSSocket, "getPeerCertificate">> = session.socket;
  // {} or null without a certificate.
  return socket.getPeerCertificate?.()?.subject !== undefined;
}
