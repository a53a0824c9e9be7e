import { IncomingMessage } from "node:http";
import type { Http2ServerRequest, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { type Clock, realClock } from "@kpng/process/clock.ts";
import { comeAgain } from "@kpng/process/connection/retry-pushback.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { Registry } from "prom-client";
import { type Call, type Connection, http1Connection, http2Connection } from "./connection.ts";
import { type ConnectionMetrics, type EndReason, makeConnectionMetrics } from "./connection-metrics.ts";
import { type KeepaliveOptions, keepAlive } from "./keepalive.ts";
import { LoopClock } from "./loop-clock.ts";

/** How long connections may last and be silent; every field may be left out. */
export interface ConnectionLimits {
  readonly keepalive?: KeepaliveOptions | undefined;
  /** Longest time that a new connection may take to show what it speaks, in milliseconds. Default 10 000. */
  readonly firstBytesMs?: number | undefined;
  /**
   * Longest time that a connection may have no call in which something was asked, in milliseconds; up to twice as long
   * passes. Default 90 000, which is longer than a client waits that was told to come again.
   */
  readonly idleMs?: number | undefined;
  /** When a connection is asked to go, in milliseconds, each up to a tenth sooner or later; 0 is never. Default 1 800 000. */
  readonly maxAgeMs?: number | undefined;
  /** Shortest time between two connections that go for their age, in milliseconds. Default 1 000. */
  readonly agePaceMs?: number | undefined;
  /** Longest time that connections may take to go when the watcher stops, in milliseconds; 0 ends them at once. Default 10 000. */
  readonly drainMs?: number | undefined;
  /** What the time of the drain is measured by, whatever the event loop does meanwhile. Default the machine's. */
  readonly drainClock?: Clock | undefined;
}

/** Longest time between two connections that are told to go when the watcher stops, in milliseconds. */
const maxDrainStepMs = 50;

/** How long a client may keep a stream open that is answered, in milliseconds. */
const answeredMs = 1_000;

type ServerRequest = IncomingMessage | Http2ServerRequest;

/**
 * All connections to clients: ends those that are silent, idle, or have been there long enough, and lets all go one
 * after the other when the watcher stops.
 *
 * *Bound:* one entry for each connection; the kernel's limit on open files is theirs.
 */
export class Connections {
  readonly clock: LoopClock;
  readonly #limits: ConnectionLimits;
  readonly #log: Log;
  readonly #metrics: ConnectionMetrics;
  readonly #open = new Set<Connection>();
  /** By session of HTTP/2, or socket of HTTP/1.1. */
  readonly #byCarrier = new WeakMap<object, Connection>();
  /** Those whose time has come, in that order. */
  readonly #aged = new Set<Connection>();
  readonly #closed = new Wakeup();
  #isAgePaced = false;
  #isDraining = false;

  constructor(limits: ConnectionLimits, log: Log, registry: Registry) {
    const { keepalive = {}, firstBytesMs, idleMs, maxAgeMs, agePaceMs } = limits;
    const times = [keepalive.intervalMs, keepalive.timeoutMs, firstBytesMs, idleMs, maxAgeMs || undefined, agePaceMs];
    // No limit may be too short for the clock; only tests have such ones.
    this.clock = new LoopClock(Math.max(5, Math.min(1_000, ...times.map((ms = 4_000) => ms / 4))));
    this.#limits = limits;
    this.#log = log;
    this.#metrics = makeConnectionMetrics(registry, () => this.#open.size);
  }

  addSession(session: ServerHttp2Session, hasAge: boolean): void {
    session.on("error", (error) => this.#log.debug("session failed", { reason: reasonOf(error) }));
    const connection = http2Connection(session);
    this.#add(session, connection, hasAge);
    const onSilent = (): void => this.#end(connection, "silent");
    keepAlive(session, this.clock, onSilent, this.#limits.keepalive);
  }

  addHttp1(socket: Socket, hasAge: boolean): void {
    this.#add(socket, http1Connection(socket), hasAge);
  }

  /** A call begins; the result aborts, with the error that the client is to get, when its connection is asked to go. */
  began(request: ServerRequest, response: { once(event: "close", listener: () => void): unknown }): AbortSignal {
    const isHttp1 = request instanceof IncomingMessage;
    const carrier = isHttp1 ? request.socket : request.stream.session;
    const connection = carrier === undefined ? undefined : this.#byCarrier.get(carrier);
    // It was closed in the moment in which the call came.
    if (connection === undefined) return AbortSignal.abort(comeAgain("the connection is gone", 0));
    const call = isHttp1 ? http1Call(request) : http2Call(request.stream);
    connection.calls.add(call);
    if (!isHttp1) this.#closeWhenAnswered(request.stream);
    response.once("close", () => {
      connection.calls.delete(call);
      if (connection.leaving.signal.aborted) connection.close();
    });
    return connection.leaving.signal;
  }

  /** Lets all go, one after the other, and resolves when all are gone or the time is over. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { drainMs = 10_000, drainClock: clock = realClock } = this.#limits;
    const startMs = clock.nowMs();
    const waiting = [...this.#open];
    // The last ones need time to go, too.
    const stepMs = Math.min(maxDrainStepMs, (drainMs * 0.8) / waiting.length);
    const over = new AbortController();
    void clock.wait(drainMs, over.signal).then(() => over.abort());
    for (let told = 0; told < waiting.length && !over.signal.aborted; ) {
      const due = Math.floor((clock.nowMs() - startMs) / stepMs) + 1;
      for (const connection of waiting.slice(told, due)) this.#leave(connection, "drain");
      told = Math.max(told, due);
      if (this.#open.size > 0) await clock.wait(stepMs, over.signal);
    }
    while (this.#open.size > 0 && !over.signal.aborted) await this.#closed.wait(over.signal);
    // Ends what waits for the end of the time.
    over.abort();
  }

  /** Resolves when all are gone, or when `signal` aborts. */
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
    const cancels = [this.#endIdle(connection)];
    const { maxAgeMs = 1_800_000 } = this.#limits;
    if (hasAge && maxAgeMs > 0) {
      const ageMs = maxAgeMs * (0.9 + 0.2 * Math.random());
      cancels.push(this.clock.after(ageMs, () => this.#age(connection)));
    }
    // Both kinds are event emitters, with a "close" each; TypeScript sees two unlike methods.
    (carrier as Socket).once("close", () => {
      for (const cancel of cancels) cancel();
      this.#open.delete(connection);
      this.#aged.delete(connection);
      this.#closed.wake();
    });
    if (this.#isDraining) this.#leave(connection, "drain");
  }

  /** Returns what stops it. */
  #endIdle(connection: Connection): () => void {
    const { idleMs = 90_000 } = this.#limits;
    let cancel: () => void = () => undefined;
    const look = (wasBusy: boolean): void => {
      cancel = this.clock.after(idleMs, () => {
        const isBusy = [...connection.calls].some(({ isAsked }) => isAsked);
        if (wasBusy || isBusy) look(isBusy);
        else this.#end(connection, "idle");
      });
    };
    look(false);
    return () => cancel();
  }

  /** A client that has its answer and does not end its own side would keep the stream, and with it the connection. */
  #closeWhenAnswered(stream: ServerHttp2Stream): void {
    stream.once("finish", () => {
      // Not at once: a client that finds both together throws the answer's end away.
      const cancel = this.clock.after(answeredMs, () => stream.close());
      stream.once("close", cancel);
    });
  }

  #age(connection: Connection): void {
    this.#aged.add(connection);
    if (!this.#isAgePaced) this.#leaveNextAged();
  }

  #leaveNextAged(): void {
    const [connection] = this.#aged;
    this.#isAgePaced = connection !== undefined;
    if (connection === undefined) return;
    this.#aged.delete(connection);
    this.#leave(connection, "age");
    this.clock.after(this.#limits.agePaceMs ?? 1_000, () => this.#leaveNextAged());
  }

  #leave(connection: Connection, reason: "age" | "drain"): void {
    if (!this.#open.has(connection) || connection.leaving.signal.aborted) return;
    this.#metrics.ended.inc({ reason });
    // First GOAWAY, so that the client does not open its next stream here.
    connection.close();
    const message = reason === "age" ? "the connection has lasted long enough" : "the watcher stops";
    connection.leaving.abort(comeAgain(message, 0));
  }

  #end(connection: Connection, reason: EndReason): void {
    this.#metrics.ended.inc({ reason });
    connection.destroy();
  }
}

function http1Call(request: IncomingMessage): Call {
  return {
    get isAsked() {
      return request.complete;
    },
  };
}

function http2Call(stream: ServerHttp2Stream): Call {
  return {
    get isAsked() {
      return stream.readableDidRead || stream.readableEnded;
    },
  };
}
