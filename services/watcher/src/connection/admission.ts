import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import type { DropArgument, Server } from "node:net";
import type { Rights } from "../identity/rights.ts";
import type { RefusalReason, Refusals, resolveLimits } from "./limits.ts";

/**
 * The classes of calls. Each has its own share of the calls in progress, so that no class can keep out another.
 *
 * | Class | Calls | Share |
 * |---|---|---|
 * | `nodes` | of nodes and relays: Watch, and the question for a position, of clients with a right | `maxCalls` |
 * | `people` | other calls of clients with a right: inspection, views, reflection | `maxQueries` |
 * | `open` | of clients without any right, and watches of health, which have no end | as many again |
 * | `probes` | single health checks, which need no right | a quarter of `maxCalls` |
 * | `unproven` | whose token is being checked; then they change their class | a quarter of `maxCalls` |
 */
export type CallClass = "nodes" | "people" | "open" | "probes" | "unproven";

/** Returns the class of a call that has these rights. */
export function classOf(url: string | undefined, { nodes, hasState, hasInspection }: Rights): CallClass {
  const [, service = "", name] = /^\/([^/?]+)\/([^/?]*)/.exec(url ?? "") ?? [];
  if (service === "grpc.health.v1.Health") return name === "Watch" ? "open" : "probes";
  if (nodes !== "all" && nodes.size === 0 && !hasState && !hasInspection) return "open";
  return /^(localv1\.Sets|globalv1\.Sets|kpng\.position\.v1\.PositionService)$/.test(service) ? "nodes" : "people";
}

/** Returns the node whose right a client has, or its nodes; undefined for clients with rights to more, or to none. */
export function nodeOf({ nodes, hasState }: Rights): string | undefined {
  return nodes === "all" || nodes.size === 0 || hasState ? undefined : [...nodes].sort().join(" ");
}

/** True for the classes whose refused calls get RESOURCE_EXHAUSTED; the others can be retried on another connection. */
export function isAnsweredWhenRefused(callClass: CallClass): boolean {
  return callClass === "people" || callClass === "open";
}

/**
 * Calls of a class that clients with the right of single nodes may have in progress, for each node. A backend has two
 * streams, and several backends may run on a node.
 */
const maxPerNode = { nodes: 16, people: 8 } as const;

/** Time between two counts of the memory of requests, in milliseconds. A count takes 0.1 ms with 1 000 calls. */
const countMs = 100;

/** Memory of a chunk of data that waits to be read, besides its bytes: a chunk may have a single one. */
const chunkBytes = 256;

/**
 * Decides which connections and calls over TCP begin, and ends connections that hold too much memory. `Connections`
 * decides when those that have begun end. Clients of unix sockets are not limited, so that an operator on the machine
 * can still query the watcher.
 *
 * - *Connections*: of all listeners together.
 * - *Calls*: by their class; those with the right of single nodes also by node. Otherwise one node could take the
 *   places, or the memory, of all others. Streams that wait for their first batch are calls like any other.
 * - *Bytes*: requests whose rest has not arrived, and those that wait, because a token is being checked or the client
 *   sends faster than it may. HTTP/2 allows each call a window of 64 KiB of them, and a connection 100 calls. All are
 *   counted ten times a second, and the connections that hold the most are ended. A client cannot send more in between
 *   than the event loop reads, which also runs the count.
 *
 * *Bound:* the shares of the classes, and one entry for each call.
 */
export class Admission {
  readonly #limits: ReturnType<typeof resolveLimits>;
  readonly #refusals: Refusals;
  readonly #shares: Readonly<Record<CallClass, number>>;
  /** Number of calls in progress, by class, and by class and node. */
  readonly #counts = new Map<string, number>();
  /** Calls, with a function that returns the bytes that each holds outside its stream. */
  readonly #calls = new Map<ServerHttp2Stream, () => number>();
  #counting: NodeJS.Timeout | undefined;

  constructor(limits: ReturnType<typeof resolveLimits>, refusals: Refusals) {
    const quarter = Math.ceil(limits.maxCalls / 4);
    const { maxCalls: nodes, maxQueries: people } = limits;
    this.#shares = { nodes, unproven: quarter, probes: quarter, people, open: people };
    this.#limits = limits;
    this.#refusals = refusals;
  }

  /**
   * Counts the memory of requests from now on, and limits the connections of these servers, which listen on TCP, before
   * a client has sent anything. They share the limit equally.
   */
  start(servers: readonly Server[]): void {
    this.#counting = setInterval(() => this.#endLargest(), countMs).unref();
    for (const server of servers) {
      // Node.js closes further connections right after accept, before anything is allocated for them.
      server.maxConnections = Math.ceil(this.#limits.maxConnections / servers.length);
      server.on("drop", (data?: DropArgument) => this.#refusals.add("connections", data?.remoteAddress ?? ""));
    }
  }

  stop(): void {
    clearInterval(this.#counting);
  }

  /** Counts the memory of a call until it ends. `held` returns what it holds outside its stream, in bytes. */
  hold(stream: ServerHttp2Stream, held: () => number = () => 0): void {
    if (!this.#calls.has(stream)) stream.once("close", () => this.#calls.delete(stream));
    this.#calls.set(stream, held);
  }

  /**
   * Adds a call; undefined if its class or its node has as many as it may. `peer` is the address of the client, "" for
   * a unix socket, and `node` is {@link nodeOf} its rights.
   */
  enter(callClass: CallClass, peer: string, node?: string): CallSlot | undefined {
    if (peer === "") return freeSlot;
    let keys: readonly string[] = [];
    const leave = (): void => {
      for (const key of keys) this.#add(key, -1);
      keys = [];
    };
    const move = (to: CallClass, ofNode?: string): boolean => {
      leave();
      const limits = this.#limitsOf(to, ofNode);
      const reached = limits.find(({ key, max }) => (this.#counts.get(key) ?? 0) >= max);
      if (reached !== undefined) {
        this.#refusals.add(reached.reason, peer);
        return false;
      }
      keys = limits.map(({ key }) => key);
      for (const key of keys) this.#add(key, 1);
      return true;
    };
    return move(callClass, node) ? { move, leave } : undefined;
  }

  #add(key: string, change: 1 | -1): void {
    const count = (this.#counts.get(key) ?? 0) + change;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }

  #limitsOf(callClass: CallClass, node: string | undefined): readonly CallLimit[] {
    const reason = callClass === "people" ? "queries" : callClass === "open" ? "open-calls" : "calls";
    const ofClass: CallLimit = { key: callClass, max: this.#shares[callClass], reason };
    if (node === undefined || (callClass !== "nodes" && callClass !== "people")) return [ofClass];
    return [{ key: `${callClass} ${node}`, max: maxPerNode[callClass], reason: "node-calls" }, ofClass];
  }

  /** Ends the connections whose requests hold the most memory, if all together hold more than they may. */
  #endLargest(): void {
    const { maxRequestBytes } = this.#limits;
    const bySession = new Map<Http2Session, number>();
    let all = 0;
    for (const [stream, held] of this.#calls) {
      const { session } = stream;
      const bytes = queuedBytes(stream) + held();
      // What is left of a connection that has ended is about to be freed.
      if (bytes === 0 || session === undefined || session.destroyed) continue;
      all += bytes;
      bySession.set(session, (bySession.get(session) ?? 0) + bytes);
    }
    if (all <= maxRequestBytes) return;
    for (const [session, bytes] of [...bySession].sort(([, a], [, b]) => b - a)) {
      if (all <= (maxRequestBytes * 3) / 4) break;
      all -= bytes;
      const fields = { held: inMebibytes(bytes), limit: inMebibytes(maxRequestBytes) };
      this.#refusals.add("requests", session.socket?.remoteAddress ?? "", fields);
      session.destroy();
    }
  }
}

/** Refuses a call with a code that lets gRPC clients retry it on another connection. */
export function refuseStream(stream: ServerHttp2Stream): void {
  stream.close(constants.NGHTTP2_REFUSED_STREAM);
  // Closing waits for the rest of the request, which nothing reads.
  stream.destroy();
}

/** The place of a call in the share of its class. */
export interface CallSlot {
  /** Changes the class and node of the call; false if these have as many as they may: then the call has no place. */
  move(to: CallClass, node?: string): boolean;
  /** Gives the place back. */
  leave(): void;
}

const freeSlot: CallSlot = { move: () => true, leave: () => undefined };

/** A limit of calls in progress that are counted together. */
interface CallLimit {
  readonly key: string;
  readonly max: number;
  /** Why calls beyond it are refused. */
  readonly reason: RefusalReason;
}

/** Returns the memory of what a stream has received and nobody has read, in bytes. */
function queuedBytes(stream: ServerHttp2Stream): number {
  if (stream.readableLength === 0) return 0;
  // Node.js has no public number of the chunks.
  const { buffer }: { readonly buffer: { readonly length: number } } = Reflect.get(stream, "_readableState");
  return stream.readableLength + chunkBytes * buffer.length;
}

const inMebibytes = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MiB`;
