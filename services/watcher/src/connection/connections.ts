import { IncomingMessage } from "node:http";
import { constants, type Http2ServerRequest, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { realClock } from "@kpng/process/clock.ts";
import { retryLaterError } from "@kpng/process/connection/retry-pushback.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Registry } from "prom-client";
import { type Call, type Connection, http1Connection, http2Connection } from "./connection.ts";
import type { ConnectionLimits } from "./connection-limits.ts";
import { type ConnectionMetrics, type EndReason, makeConnectionMetrics } from "./connection-metrics.ts";
import { keepAlive } from "./keepalive.ts";
import { LoopClock } from "./loop-clock.ts";
import type { Refusals } from "./refusals.ts";

/**
 * The open connections of a server. It ends connections that are silent or idle and calls whose client does not read,
 * asks clients of old connections to reconnect, and drains all connections one after the other when the watcher stops.
 *
 * `serve` creates one; `makeServer` registers each connection with it, and the handler of `makeCallHandler` each call.
 * This class decides when a connection ends; whether a connection or a call may begin is decided before, by
 * `AcceptLimit` and `Admission`.
 *
 * *Bound:* one entry per connection; see AcceptLimit.
 */
export class Connections {
  readonly clock: LoopClock;
  readonly #limits: ConnectionLimits;
  readonly #log: Log;
  readonly #metrics: ConnectionMetrics;
  readonly #refusals: Refusals;
  readonly #open = new Set<Connection>();
  /** By HTTP/2 session, or by HTTP/1.1 socket. */
  readonly #byCarrier = new WeakMap<object, Connection>();
  /** Connections whose clients can reconnect elsewhere. */
  readonly #movable = new Set<Connection>();
  /** Queue of clients to ask to reconnect, one every {@link ConnectionLimits.ageIntervalMs}, with the reason. */
  readonly #moving = new Map<Connection, "age" | "stale">();
  readonly #closed = new Wakeup();
  #isPaced = false;
  /** Connections over TLS whose handshake is not complete. */
  readonly #handshakes = new Map<string, Socket>();
  #isDraining = false;

  constructor(limits: ConnectionLimits, log: Log, registry: Registry, refusals: Refusals) {
    const { keepalive = {}, firstBytesMs, idleMs, maxAgeMs, ageIntervalMs, writeTimeoutMs } = limits;
    const times = [
      keepalive.intervalMs,
      keepalive.timeoutMs,
      firstBytesMs,
      idleMs,
      maxAgeMs || undefined,
      ageIntervalMs,
      writeTimeoutMs || undefined,
    ];
    // The clock ticks at least four times within the shortest limit, which matters for the short limits of tests.
    this.clock = new LoopClock(Math.max(5, Math.min(1_000, ...times.map((ms = 4_000) => ms / 4))));
    this.#limits = limits;
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
    const connection = http2Connection(session);
    this.#add(session, connection, hasAge);
    const onSilent = (): void => this.#end(connection, "silent");
    keepAlive(session, this.clock, onSilent, this.#limits.keepalive);
  }

  addHttp1(socket: Socket, hasAge: boolean): void {
    this.#add(socket, http1Connection(socket), hasAge);
  }

  /** Registers a call. Returns a signal that aborts, with the error for the client, when the connection is to close. */
  began(request: ServerRequest, response: ServerResponse): AbortSignal {
    const isHttp1 = request instanceof IncomingMessage;
    const carrier = isHttp1 ? request.socket : request.stream.session;
    const connection = carrier === undefined ? undefined : this.#byCarrier.get(carrier);
    // The connection was closed while the call arrived.
    if (connection === undefined) return AbortSignal.abort(retryLaterError("the connection was closed", 0));
    const call = isHttp1 ? http1Call(request, response) : http2Call(request.stream);
    connection.calls.add(call);
    if (!isHttp1) this.#closeWhenAnswered(request.stream);
    response.once("close", () => {
      connection.calls.delete(call);
      if (connection.leaving.signal.aborted) connection.close();
    });
    return connection.leaving.signal;
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
    const { drainMs = 10_000, drainClock: clock = realClock } = this.#limits;
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
    const old = [...this.#open].filter(({ hasCertificate }) => hasCertificate);
    for (const connection of old) this.#leave(connection, "ca");
    this.clock.after(this.#limits.oldCaMs ?? 10_000, () => {
      for (const connection of old) if (this.#open.has(connection)) connection.destroy();
    });
  }

  /** Resolves when all connections are closed, or when `signal` aborts. */
  async gone(signal: AbortSignal): Promise<void> {
    while (this.#open.size > 0 && !signal.aborted) await this.#closed.wait(signal);
  }

  closeAll(): void {
    for (const connection of this.#open) connection.close();
  }

  destroyAll(): void {
    for (const connection of this.#open) connection.destroy();
  }

  #add(carrier: ServerHttp2Session | Socket, connection: Connection, hasAge: boolean): void {
    this.#open.add(connection);
    this.#byCarrier.set(carrier, connection);
    const cancels = [this.#endIdle(connection), this.#endUnread(connection, carrier)];
    if (hasAge) this.#movable.add(connection);
    const { maxAgeMs = 1_800_000 } = this.#limits;
    if (hasAge && maxAgeMs > 0) {
      const ageMs = maxAgeMs * (0.9 + 0.2 * Math.random());
      cancels.push(this.clock.after(ageMs, () => this.#move(connection, "age")));
    }
    // Both types emit "close", but TypeScript cannot call `once` of their union.
    (carrier as Socket).once("close", () => {
      for (const cancel of cancels) cancel();
      this.#open.delete(connection);
      this.#movable.delete(connection);
      this.#moving.delete(connection);
      this.#closed.wake();
    });
    if (this.#isDraining) this.#leave(connection, "drain");
  }

  /** Ends the connection once it is idle. Returns a function that cancels this. */
  #endIdle(connection: Connection): () => void {
    const { idleMs = 90_000 } = this.#limits;
    let cancel: () => void = () => undefined;
    const check = (wasBusy: boolean): void => {
      cancel = this.clock.after(idleMs, () => {
        const isBusy = [...connection.calls].some(({ hasRequest }) => hasRequest);
        if (wasBusy || isBusy) check(isBusy);
        else this.#end(connection, "idle");
      });
    };
    check(false);
    return () => cancel();
  }

  /** Ends calls whose output has waited since the last check. Returns a function that cancels this. */
  #endUnread({ calls }: Connection, carrier: ServerHttp2Session | Socket): () => void {
    const { writeTimeoutMs = 60_000 } = this.#limits;
    let cancel: () => void = () => undefined;
    if (writeTimeoutMs === 0) return cancel;
    const full = new Set<Call>();
    const check = (): void => {
      for (const call of calls) {
        if (full.has(call)) {
          full.delete(call);
          this.#refusals.add("unread", ("socket" in carrier ? carrier.socket : carrier)?.remoteAddress ?? "");
          call.end();
        } else if (call.output.writableNeedDrain) {
          full.add(call);
          call.output.once("drain", () => full.delete(call));
        }
      }
      for (const call of full) if (!calls.has(call)) full.delete(call);
      cancel = this.clock.after(writeTimeoutMs, check);
    };
    cancel = this.clock.after(writeTimeoutMs, check);
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
    this.clock.after(this.#limits.ageIntervalMs ?? 1_000, () => this.#moveNext());
  }

  #leave(connection: Connection, reason: keyof typeof leaveMessages): void {
    if (!this.#open.has(connection) || connection.leaving.signal.aborted) return;
    this.#metrics.ended.inc({ reason });
    // GOAWAY comes first, so that the client does not open its next stream on this connection.
    connection.close();
    connection.leaving.abort(retryLaterError(leaveMessages[reason], 0));
  }

  #end(connection: Connection, reason: EndReason): void {
    this.#metrics.ended.inc({ reason });
    connection.destroy();
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

type ServerRequest = IncomingMessage | Http2ServerRequest;

/** The part of a response that both protocols have. */
interface ServerResponse {
  readonly writableNeedDrain: boolean;
  once(event: "close" | "drain", listener: () => void): unknown;
}

function http1Call(request: IncomingMessage, response: ServerResponse): Call {
  return {
    get hasRequest() {
      return request.complete;
    },
    output: response,
    end: () => request.socket.destroy(),
  };
}

function http2Call(stream: ServerHttp2Stream): Call {
  return {
    get hasRequest() {
      return stream.readableDidRead || stream.readableEnded;
    },
    output: stream,
    end: () => {
      stream.close(constants.NGHTTP2_CANCEL);
      // Its writes never complete, and closing waits for them.
      stream.destroy();
    },
  };
}
