import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { PlannedPassage } from "../relay/planned-passage.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { FromWorker, Progress, ToWorker, WorkerSettings } from "./messages.ts";
import { workerArgument } from "./worker-call.ts";

/** A listener whose socket workers share. */
export interface SharedListener {
  readonly server: Server;
  /**
   * Decides about a client that this process or a worker accepted; returns the reason if it is refused. Without an
   * address, the client has reset the connection before it was accepted.
   */
  admit(address: string | undefined, port: number): PlannedPassage | ConnectionEnd;
  /** A connection could not be accepted, e.g. because of too many open files: it is lost, and the next may succeed. */
  failed(): void;
}

const restartMs = 1_000;
const killAfterMs = 5_000;
const settleMs = 1_000;
/** Seconds without a message, of which each worker sends one per second, after which a worker hangs. */
const hungAfterSeconds = 30;

/** A listener, and what workers do with it. */
interface Share {
  readonly id: number;
  readonly listener: SharedListener;
  /** The workers that may accept from it. */
  readonly workers: Set<Worker>;
  /** Number of its connections in workers. */
  open: number;
  /** Set when it is closed; resolves when no worker has it, nor connections of it. */
  ended: PromiseWithResolvers<void> | undefined;
}

/** A child process, and what the process with the plan knows of it. */
interface Worker {
  readonly child: ChildProcess;
  readonly passages: Map<number, { readonly passage: PlannedPassage; readonly share: Share }>;
  /** Resolves with its exit status or signal, or with the reason why it was not started. */
  readonly exited: Promise<unknown>;
  /** Whether it receives messages; before that it gets no socket. */
  isReady: boolean;
  /** The sockets that were sent, one after the other. */
  sent: Promise<void>;
  /** Seconds since its last message. */
  silentSeconds: number;
}

/**
 * Processes that carry connections beside this one (`--workers`). Each shares all listening sockets with this process:
 * whichever is free accepts. This process decides about every connection and counts it, so limits, affinity and least
 * connections are exact ([0083](../../../../docs/decisions/0083-workers-share-listeners.md)).
 *
 * `UserspaceRuntime` makes one, and each `TcpListener` shares its socket with it. The other side is `worker.ts`.
 *
 * A worker that ends takes its connections with it: they count as `stopped`, and another worker is started after a
 * second. The bytes of its last second are not counted. A worker that hangs is killed after 30 s: its connections stand
 * still, and its copies of listening sockets would keep their ports
 * ([0089](../../../../docs/decisions/0089-workers-show-that-they-live.md)).
 */
export class Workers {
  readonly #program: string;
  readonly #settings: WorkerSettings;
  readonly #log: Log;
  readonly #workers = new Set<Worker>();
  readonly #shares = new Map<number, Share>();
  readonly #restarts = new Set<NodeJS.Timeout>();
  readonly #watch: NodeJS.Timeout;
  #lastId = 0;
  #isStopped = false;
  /** Workers that ended by themselves. */
  exits = 0;

  /** Starts `count` workers, by a program that runs `worker.ts` with {@link workerArgument}. */
  constructor(count: number, program: string, settings: WorkerSettings, log: Log) {
    this.#program = program;
    this.#settings = settings;
    this.#log = log;
    for (let started = 0; started < count; started++) this.#start();
    this.#watch = setInterval(() => this.#killHung(), 1_000).unref();
  }

  /** The workers that accept connections, with the number of those that are open. */
  get running(): readonly { readonly pid: number | undefined; readonly connections: number }[] {
    return this.#ready.map(({ child, passages }) => ({ pid: child.pid, connections: passages.size }));
  }

  /**
   * Lets the workers accept from a listening socket. Returns a function that stops this, and resolves when the
   * connections of the listener have ended in all workers.
   */
  share(listener: SharedListener): () => Promise<void> {
    const share: Share = { id: ++this.#lastId, listener, workers: new Set(), open: 0, ended: undefined };
    this.#shares.set(share.id, share);
    for (const worker of this.#ready) this.#offer(worker, share);
    return () => {
      share.ended = Promise.withResolvers();
      for (const worker of share.workers) send(worker, { kind: "close", listener: share.id });
      this.#endShare(share);
      return share.ended.promise;
    };
  }

  /** Whether no worker accepts from a closed listener, so that its port is free. */
  get isSettled(): boolean {
    return this.#shares.values().every(({ ended, workers }) => ended === undefined || workers.size === 0);
  }

  /** Waits until {@link isSettled}, for at most 1 s: a worker may hang. */
  async settled(): Promise<void> {
    const deadlineMs = performance.now() + settleMs;
    while (!this.isSettled && performance.now() < deadlineMs) await sleep(1);
  }

  /** Resets connections to endpoints that left the plan at least `drainMs` ago; 0 for none. */
  resetDrained(drainMs: number, nowMs: number): void {
    if (drainMs === 0) return;
    for (const worker of this.#workers) {
      for (const [id, { passage }] of worker.passages) {
        const { removedMs } = passage;
        if (removedMs !== undefined && nowMs - removedMs >= drainMs) {
          send(worker, { kind: "reset", id, end: "drained" });
        }
      }
    }
  }

  /** Ends all workers, which reset their connections. Resolves when they have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearInterval(this.#watch);
    for (const timer of this.#restarts) clearTimeout(timer);
    const ended = [...this.#workers].map(async ({ child, exited }) => {
      const timer = setTimeout(() => child.kill("SIGKILL"), killAfterMs);
      if (child.connected) child.disconnect();
      await exited;
      clearTimeout(timer);
    });
    await Promise.all(ended);
  }

  get #ready(): readonly Worker[] {
    return [...this.#workers].filter(({ isReady }) => isReady);
  }

  #start(): void {
    let child: ChildProcess;
    try {
      child = fork(this.#program, [workerArgument, JSON.stringify(this.#settings)]);
    } catch (error) {
      // For lack of memory, e.g. after the kernel has killed a worker for it. Other reasons arrive as "error".
      this.#log.error("a worker could not be started: trying again", { reason: reasonOf(error) });
      this.#startLater();
      return;
    }
    const exited = once(child, "exit").then(([status, signal]: unknown[]) => status ?? signal, reasonOf);
    const worker: Worker = {
      child,
      passages: new Map(),
      exited,
      isReady: false,
      sent: Promise.resolve(),
      silentSeconds: 0,
    };
    this.#workers.add(worker);
    child.on("error", () => undefined);
    child.on("message", (message: FromWorker) => this.#receive(worker, message));
    void exited.then((status) => this.#onExit(worker, status));
  }

  #startLater(): void {
    const timer = setTimeout(() => {
      this.#restarts.delete(timer);
      this.#start();
    }, restartMs);
    this.#restarts.add(timer);
  }

  /**
   * Sends a socket to a worker after the ones before it. Node.js holds back all messages until the worker has confirmed
   * a socket, so of thousands in a row, the first connections would have to wait for the last socket.
   */
  #offer(worker: Worker, share: Share): void {
    worker.sent = worker.sent.then(async () => {
      if (share.ended !== undefined || !this.#workers.has(worker)) return;
      share.workers.add(worker);
      await send(worker, { kind: "listen", listener: share.id }, share.listener.server);
    });
  }

  /** Forgets a closed listener that no worker has, nor connections of it. */
  #endShare(share: Share): void {
    if (share.ended === undefined || share.workers.size > 0 || share.open > 0) return;
    this.#shares.delete(share.id);
    share.ended.resolve();
  }

  /** Kills the workers that have sent nothing for 30 s. Call it each second. */
  #killHung(): void {
    for (const worker of this.#ready) {
      const { child } = worker;
      // Counted, because this process may have been stopped for as long as the worker: messages may wait to be read.
      if (++worker.silentSeconds < hungAfterSeconds || child.killed) continue;
      this.#log.error("a worker does not answer: killing it", { pid: child.pid, seconds: hungAfterSeconds });
      child.kill("SIGKILL");
    }
  }

  #onExit(worker: Worker, status: unknown): void {
    const { child, passages } = worker;
    const connections = passages.size;
    this.#workers.delete(worker);
    for (const id of [...passages.keys()]) this.#end(worker, id, "stopped");
    for (const share of [...this.#shares.values()]) if (share.workers.delete(worker)) this.#endShare(share);
    if (this.#isStopped) return;
    this.exits++;
    const fields = { pid: child.pid, status, connections };
    this.#log.error("a worker has ended, and its connections with it: starting another one", fields);
    this.#startLater();
  }

  #receive(worker: Worker, message: FromWorker): void {
    // Its last messages may arrive after its exit: a connection that they announce would never end.
    if (!this.#workers.has(worker)) return;
    worker.silentSeconds = 0;
    switch (message.kind) {
      case "ready":
        worker.isReady = true;
        for (const share of this.#shares.values()) this.#offer(worker, share);
        break;
      case "accepted":
        this.#admit(worker, message);
        break;
      case "next":
        this.#next(worker, message.id);
        break;
      case "progress":
        for (const progress of message.reports) this.#note(worker, progress);
        break;
      case "ended":
        this.#note(worker, message.last);
        this.#end(worker, message.last[0], message.end);
        break;
      case "deaf": {
        const share = this.#shares.get(message.listener);
        if (share?.workers.delete(worker)) this.#endShare(share);
        break;
      }
      case "failed":
        this.#shares.get(message.listener)?.listener.failed();
        break;
    }
  }

  #admit(worker: Worker, { id, listener, address, port }: FromWorker & { readonly kind: "accepted" }): void {
    const share = this.#shares.get(listener);
    // It is known until the worker is deaf, which it says after its last client.
    if (share === undefined) return;
    const passage = share.listener.admit(address, port);
    if (typeof passage === "string") {
      void send(worker, { kind: "to", id, to: passage });
      return;
    }
    share.open++;
    worker.passages.set(id, { passage, share });
    this.#next(worker, id);
  }

  #next(worker: Worker, id: number): void {
    worker.passages.get(id)?.passage.next((to) => void send(worker, { kind: "to", id, to }));
  }

  #note(worker: Worker, [id, fromClient, toClient, hasLeft]: Progress): void {
    const passage = worker.passages.get(id)?.passage;
    passage?.carried(fromClient, toClient);
    if (hasLeft) passage?.leave();
  }

  /** Without effect on a connection that was refused. */
  #end(worker: Worker, id: number, end: ConnectionEnd): void {
    const known = worker.passages.get(id);
    if (known === undefined) return;
    worker.passages.delete(id);
    known.passage.end(end);
    known.share.open--;
    this.#endShare(known.share);
  }
}

/**
 * Sends a message, if the worker still runs; resolves when it is on its way. A listening socket that has been closed is
 * left out.
 */
function send({ child }: Worker, message: ToWorker, server?: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (child.connected) child.send(message, server, {}, () => resolve());
  else resolve();
  return promise;
}
