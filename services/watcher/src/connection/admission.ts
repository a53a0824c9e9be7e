import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import type { DropArgument, Server, Socket } from "node:net";
import { getOrMake } from "@kpng/model/collections.ts";
import type { Rights } from "../identity/rights.ts";
import { Rate, type RefusalReason, type Refusals, type resolveLimits } from "./limits.ts";

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

/** Maximum size of the headers of a call, in bytes. Node.js allows 64 KiB; tokens of ServiceAccounts have 1 to 2 KiB. */
const maxHeaderBytes = 16 * 1024;

/**
 * Calls that a connection may have in progress, with those that were refused, when a further one is refused: nodes have
 * one or two. A connection with more is ended, because each refusal alone takes 0.1 ms and 10 KiB.
 */
const fewCalls = 8;

/**
 * Calls that a connection may begin at once, and then per second; further ones wait. A node or a relay begins one or
 * two. The pages of a long list are one call each, and proxies carry the calls of many clients on a connection. A call
 * that ends at once takes 0.2 ms.
 */
const [callBurst, callsPerSecond] = [100, 100];

/**
 * Maximum time that a call waits, in milliseconds: longer than 100 waiting calls take, and a connection has no more at
 * a time. Only a client that cancels waiting calls and begins others gets beyond it.
 */
const maxWaitMs = 1_200;

/**
 * Calls of a class that clients with the right of single nodes may have in progress, for each node. A backend has two
 * streams, and several backends may run on a node. A person's GetNodeView holds the whole view until it is read: 5 MiB
 * with 40 000 endpoints.
 */
const maxPerNode = { nodes: 16, people: 8 } as const;

/** Calls of the classes `people` and `open` that a connection may have in progress, of each class. */
const maxPerConnection = 32;

/** Time between two counts of the memory of requests, in milliseconds. A count takes 0.1 ms with 1 000 calls. */
const countMs = 100;

/** Memory of a chunk of data that waits to be read, besides its bytes: a chunk may have a single one. */
const chunkBytes = 256;

/**
 * Decides which connections and calls over TCP begin, and ends connections that hold too much memory. `Connections`
 * decides when those that have begun end. Clients of unix sockets are not limited, so that an operator on the machine
 * can still query the watcher.
 *
 * - *Connections*: of all listeners together, and of each address.
 * - *Calls*: by their class; those with the right of single nodes also by node, and all by connection. Otherwise one node
 *   could take the places, or the memory, of all others. Each connection begins them at a limited rate.
 * - *Bytes*: requests whose rest has not arrived, and those that wait, because a token is being checked or the client
 *   sends faster than it may. HTTP/2 allows each call a window of 64 KiB of them, and a connection 100 calls. All are
 *   counted ten times a second, and the connections that hold the most are ended. A client cannot send more in between
 *   than the event loop reads, which also runs the count.
 *
 * *Bound:* the shares of the classes, and one entry for each connection, call and address.
 */
export class Admission {
  readonly #limits: ReturnType<typeof resolveLimits>;
  readonly #refusals: Refusals;
  readonly #shares: Readonly<Record<CallClass, number>>;
  /** Listeners, with the connections that each has. */
  readonly #servers = new Map<Server, number>();
  readonly #connectionsByAddress = new Map<string, number>();
  readonly #callsByClass = new Map<CallClass, number>();
  readonly #callsByNode = new Map<string, number>();
  readonly #byCarrier = new WeakMap<object, CarrierCalls>();
  /** Calls, with a function that returns the bytes that each holds outside its stream. */
  readonly #calls = new Map<ServerHttp2Stream, () => number>();
  #connections = 0;
  #counting: NodeJS.Timeout | undefined;

  constructor(limits: ReturnType<typeof resolveLimits>, refusals: Refusals) {
    const quarter = Math.ceil(limits.maxCalls / 4);
    const { maxCalls: nodes, maxQueries: people } = limits;
    this.#shares = { nodes, unproven: quarter, probes: quarter, people, open: people };
    this.#limits = limits;
    this.#refusals = refusals;
  }

  /** Counts the memory of requests from now on. */
  start(): void {
    this.#counting = setInterval(() => this.#endLargest(), countMs).unref();
  }

  stop(): void {
    clearInterval(this.#counting);
  }

  /** Limits the connections of a server that listens on TCP, before a client has sent anything. */
  attach(server: Server): void {
    this.#servers.set(server, 0);
    this.#shareConnections();
    // Prepended, so that it runs before the other handlers of `connection`.
    server.prependListener("connection", (socket: Socket) => this.#accept(server, socket));
    server.on("drop", (data?: DropArgument) => this.#refusals.add("connections", data?.remoteAddress ?? ""));
  }

  /**
   * Calls `begin` for a call: now, or when its connection may begin another one. Ends the connection if the headers are
   * very large, or if it has many calls waiting. `peer` is the address of the client, "" for a unix socket.
   */
  pace(stream: ServerHttp2Stream, rawHeaders: readonly string[], peer: string, begin: () => void): void {
    const { session } = stream;
    // The rest of what was read with a call whose connection has ended.
    if (session === undefined || session.destroyed) {
      stream.destroy();
      return;
    }
    if (peer === "") {
      begin();
      return;
    }
    const isLarge = rawHeaders.reduce((sum, { length }) => sum + length, 0) > maxHeaderBytes;
    const waitMs = this.#callsOf(session).rate.add(1, performance.now());
    if (isLarge || waitMs > maxWaitMs) {
      this.#refusals.add(isLarge ? "headers" : "call-rate", peer);
      endSession(session);
      return;
    }
    this.#calls.set(stream, () => 0);
    stream.once("close", () => this.#calls.delete(stream));
    if (waitMs === 0) {
      begin();
      return;
    }
    const timer = setTimeout(begin, waitMs).unref();
    stream.once("close", () => clearTimeout(timer));
  }

  /** Counts what a call holds outside its stream, too. `held` returns its bytes. */
  hold(stream: ServerHttp2Stream, held: () => number): void {
    if (this.#calls.has(stream)) this.#calls.set(stream, held);
  }

  /**
   * Adds a call; undefined if its class, its node or its connection has as many as it may. `carrier` is the connection,
   * `node` is {@link nodeOf} its rights.
   */
  enter(callClass: CallClass, carrier: object, peer: string, node?: string): CallSlot | undefined {
    if (peer === "") return freeSlot;
    const calls = this.#callsOf(carrier);
    let current: { readonly callClass: CallClass; readonly node: string | undefined } | undefined;
    const leave = (): void => {
      if (current !== undefined) this.#add(current.callClass, calls, current.node, -1);
      current = undefined;
    };
    const move = (to: CallClass, ofNode?: string): boolean => {
      const toNode = to === "nodes" || to === "people" ? ofNode : undefined;
      if (to === current?.callClass && toNode === current.node) return true;
      leave();
      const reason = this.#refusalOf(to, calls, toNode);
      if (reason === undefined) {
        current = { callClass: to, node: toNode };
        this.#add(to, calls, toNode, 1);
      } else {
        calls.refused += 1;
        this.#refusals.add(reason, peer);
      }
      return reason === undefined;
    };
    return move(callClass, node) ? { move, leave } : undefined;
  }

  /** Ends a refused call with a code that lets gRPC clients retry, or its connection if it has many. */
  refuse(stream: ServerHttp2Stream): void {
    const { session } = stream;
    if (session === undefined) {
      stream.destroy();
      return;
    }
    const { refused, byClass } = this.#callsOf(session);
    if ([...byClass.values()].reduce((sum, count) => sum + count, refused) > fewCalls) {
      endSession(session);
      return;
    }
    stream.close(constants.NGHTTP2_REFUSED_STREAM);
    // Closing waits for the rest of the request, which nothing reads.
    stream.destroy();
  }

  #accept(server: Server, socket: Socket): void {
    const { remoteAddress: address = "" } = socket;
    const count = this.#count(this.#connectionsByAddress, address, 1);
    this.#addConnection(server, 1);
    socket.once("close", () => {
      this.#addConnection(server, -1);
      this.#count(this.#connectionsByAddress, address, -1);
    });
    const { maxConnectionsPerAddress: max } = this.#limits;
    if (max === 0 || count <= max) return;
    this.#refusals.add("address", address);
    socket.destroy();
  }

  #addConnection(server: Server, change: 1 | -1): void {
    this.#connections += change;
    this.#servers.set(server, (this.#servers.get(server) ?? 0) + change);
    this.#shareConnections();
  }

  /**
   * Sets `maxConnections` of each server so that all together accept no more than the limit. Node.js closes further
   * connections right after accept, before anything is allocated for them.
   */
  #shareConnections(): void {
    const room = Math.max(0, this.#limits.maxConnections - this.#connections);
    for (const [server, open] of this.#servers) server.maxConnections = open + room;
  }

  #refusalOf(callClass: CallClass, { byClass }: CarrierCalls, node: string | undefined): RefusalReason | undefined {
    const limit = callClass === "people" ? maxPerNode.people : maxPerNode.nodes;
    if (node !== undefined && (this.#callsByNode.get(`${callClass} ${node}`) ?? 0) >= limit) return "node-calls";
    const isAnswered = isAnsweredWhenRefused(callClass);
    if (isAnswered && (byClass.get(callClass) ?? 0) >= maxPerConnection) return "connection-queries";
    if ((this.#callsByClass.get(callClass) ?? 0) < this.#shares[callClass]) return undefined;
    return callClass === "people" ? "queries" : isAnswered ? "open-calls" : "calls";
  }

  #add(callClass: CallClass, { byClass }: CarrierCalls, node: string | undefined, change: 1 | -1): void {
    this.#count(this.#callsByClass, callClass, change);
    this.#count(byClass, callClass, change);
    if (node !== undefined) this.#count(this.#callsByNode, `${callClass} ${node}`, change);
  }

  #count<K>(counts: Map<K, number>, key: K, change: 1 | -1): number {
    const count = (counts.get(key) ?? 0) + change;
    if (count === 0) counts.delete(key);
    else counts.set(key, count);
    return count;
  }

  #callsOf(carrier: object): CarrierCalls {
    return getOrMake(this.#byCarrier, carrier, () => {
      return { byClass: new Map(), refused: 0, rate: new Rate(callBurst, callsPerSecond) };
    });
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

/** Returns the memory of what a stream has received and nobody has read, in bytes. */
function queuedBytes(stream: ServerHttp2Stream): number {
  if (stream.readableLength === 0) return 0;
  // Node.js has no public number of the chunks.
  const { buffer }: { readonly buffer: { readonly length: number } } = Reflect.get(stream, "_readableState");
  return stream.readableLength + chunkBytes * buffer.length;
}

/** The place of a call in the share of its class. */
export interface CallSlot {
  /** Changes the class and node of the call; false if these have as many as they may: then the call has no place. */
  move(to: CallClass, node?: string): boolean;
  /** Gives the place back. */
  leave(): void;
}

/** The calls of a connection: those in progress by class, and the number of refused ones. */
interface CarrierCalls {
  readonly byClass: Map<CallClass, number>;
  refused: number;
  readonly rate: Rate;
}

const freeSlot: CallSlot = { move: () => true, leave: () => undefined };

const inMebibytes = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MiB`;

function endSession(session: Http2Session): void {
  // `destroy` alone would send NO_ERROR; with a code, it would report an error of the session.
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  session.destroy();
}
