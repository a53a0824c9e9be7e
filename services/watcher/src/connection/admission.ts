import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import type { DropArgument, Server } from "node:net";
import { hasAnyRight, type Rights } from "../identity/rights.ts";
import type { RefusalReason, Refusals, resolveLimits } from "./limits.ts";

/**
 * Class of a call. Each class has its own limit, so that no class can crowd out another.
 *
 * | Class | Calls | Limit |
 * |---|---|---|
 * | `nodes` | streams and position checks of nodes and relays with a right | `maxCalls` |
 * | `people` | other calls of clients with a right: inspection, reflection | `maxQueries` |
 * | `open` | calls of clients without any right, and health watches, which have no end | `maxQueries` |
 * | `probes` | single health checks, which need no right | a quarter of `maxCalls` |
 * | `unproven` | calls whose token is being checked, before they get another class | a quarter of `maxCalls` |
 */
export type CallClass = "nodes" | "people" | "open" | "probes" | "unproven";

export function classOf(url: string | undefined, rights: Rights): CallClass {
  const [, service = "", name] = /^\/([^/?]+)\/([^/?]*)/.exec(url ?? "") ?? [];
  if (service === "grpc.health.v1.Health") return name === "Watch" ? "open" : "probes";
  if (!hasAnyRight(rights)) return "open";
  return /^(localv1\.Sets|globalv1\.Sets|kpng\.position\.v1\.PositionService)$/.test(service) ? "nodes" : "people";
}

/**
 * Returns the node or nodes that a client is restricted to; undefined if the client has rights to all nodes or to none.
 */
export function nodeOf({ nodes, hasState }: Rights): string | undefined {
  return nodes === "all" || nodes.size === 0 || hasState ? undefined : [...nodes].sort().join(" ");
}

/**
 * True if refused calls of a class get RESOURCE_EXHAUSTED, which tells people why. Clients may retry refused calls of
 * other classes on another connection, which may lead to another replica.
 */
export function isAnsweredWhenRefused(callClass: CallClass): boolean {
  return callClass === "people" || callClass === "open";
}

/**
 * Maximum number of calls in progress, per node and class. A backend has two streams, and several backends may run on a
 * node.
 */
const maxPerNode = { nodes: 16, people: 8 } as const;

/** Interval at which the memory of requests is counted, in milliseconds. A count takes 0.1 ms with 1 000 calls. */
const countMs = 100;

/** Memory of an unread chunk in addition to its content (which may be a single byte), in bytes. */
const chunkBytes = 256;

/**
 * Decides which connections and calls over TCP may begin, and ends connections that occupy too much memory. Unix
 * sockets have no limits, so that an operator on the machine can always query the watcher.
 *
 * - *Connections* are limited; the listeners share the limit.
 * - *Calls* are limited by class and, for clients restricted to nodes, also by node, so that no node can take the slots
 *   of all others.
 * - *Bytes* of incomplete or unread requests are counted ten times a second; above the limit, the connections with the
 *   most bytes are ended. Node.js gives each call a window of 64 KiB; `maxStreamsPerConnection` bounds the calls.
 *
 * *Bound:* the limits of the classes, and one entry for each call.
 */
export class Admission {
  readonly #limits: ReturnType<typeof resolveLimits>;
  readonly #refusals: Refusals;
  readonly #maxByClass: Readonly<Record<CallClass, number>>;
  readonly #counts = new Map<string, number>();
  /** For each call, a function that returns the call's memory outside the stream (an incomplete message), in bytes. */
  readonly #calls = new Map<ServerHttp2Stream, () => number>();
  #counting: NodeJS.Timeout | undefined;

  constructor(limits: ReturnType<typeof resolveLimits>, refusals: Refusals) {
    const quarter = Math.ceil(limits.maxCalls / 4);
    const { maxCalls: nodes, maxQueries: people } = limits;
    this.#maxByClass = { nodes, unproven: quarter, probes: quarter, people, open: people };
    this.#limits = limits;
    this.#refusals = refusals;
  }

  /** Starts counting memory, and divides the limit of connections among these TCP servers. */
  start(servers: readonly Server[]): void {
    this.#counting = setInterval(() => this.#endLargest(), countMs).unref();
    for (const server of servers) {
      // Node.js closes further connections before it allocates anything for them.
      server.maxConnections = Math.ceil(this.#limits.maxConnections / servers.length);
      server.on("drop", (data?: DropArgument) => this.#refusals.add("connections", data?.remoteAddress ?? ""));
    }
  }

  stop(): void {
    clearInterval(this.#counting);
  }

  /**
   * Counts the memory of a call (its stream, plus `moreBytes` outside the stream) until the call ends; a second count
   * of a stream replaces the first. Not to be called for unix sockets, which have no limits.
   */
  countMemory(stream: ServerHttp2Stream, moreBytes: () => number = () => 0): void {
    if (!this.#calls.has(stream)) stream.once("close", () => this.#calls.delete(stream));
    this.#calls.set(stream, moreBytes);
  }

  /**
   * Admits a call; returns undefined if the limit of its class or node is reached. `peer` is "" for a unix socket;
   * `node` is the result of {@link nodeOf}.
   */
  enter(callClass: CallClass, peer: string, node?: string): CallSlot | undefined {
    if (peer === "") return unlimitedSlot;
    let limits = this.#take(callClass, peer, node);
    if (limits === undefined) return undefined;
    return {
      move: (to, ofNode) => {
        this.#release(limits);
        limits = this.#take(to, peer, ofNode);
        return limits !== undefined;
      },
      leave: () => {
        this.#release(limits);
        limits = undefined;
      },
    };
  }

  /**
   * Counts a call towards its limits and returns those limits. If one of them is reached, reports the refusal and
   * returns undefined.
   */
  #take(callClass: CallClass, peer: string, node: string | undefined): readonly CallLimit[] | undefined {
    const limits = this.#limitsOf(callClass, node);
    const reached = limits.find(({ key, max }) => (this.#counts.get(key) ?? 0) >= max);
    if (reached !== undefined) {
      this.#refusals.add(reached.reason, peer);
      return undefined;
    }
    for (const { key } of limits) this.#add(key, 1);
    return limits;
  }

  #release(limits: readonly CallLimit[] = []): void {
    for (const { key } of limits) this.#add(key, -1);
  }

  #add(key: string, change: 1 | -1): void {
    const count = (this.#counts.get(key) ?? 0) + change;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }

  #limitsOf(callClass: CallClass, node: string | undefined): readonly CallLimit[] {
    const reason = callClass === "people" ? "queries" : callClass === "open" ? "open-calls" : "calls";
    const ofClass: CallLimit = { key: callClass, max: this.#maxByClass[callClass], reason };
    if (node === undefined || (callClass !== "nodes" && callClass !== "people")) return [ofClass];
    return [{ key: `${callClass} ${node}`, max: maxPerNode[callClass], reason: "node-calls" }, ofClass];
  }

  /** Ends the connections with the largest requests while all requests together exceed their limit. */
  #endLargest(): void {
    const { maxRequestBytes } = this.#limits;
    const bySession = new Map<Http2Session, number>();
    let all = 0;
    for (const [stream, moreBytes] of this.#calls) {
      const { session } = stream;
      const bytes = queuedBytes(stream) + moreBytes();
      if (bytes === 0 || session === undefined || session.destroyed) continue;
      all += bytes;
      bySession.set(session, (bySession.get(session) ?? 0) + bytes);
    }
    if (all <= maxRequestBytes) return;
    for (const [session, bytes] of [...bySession].sort(([, a], [, b]) => b - a)) {
      // This leaves some room, so that the next chunk does not end further connections.
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
  // Closing alone would wait for the end of the request, which nothing reads.
  stream.destroy();
}

/** The place of one call within the limits. */
export interface CallSlot {
  /**
   * Moves the call to another class and node. If a limit is reached, the call loses its slot and the result is false.
   * Must not be called after `leave`, because nothing would release the new slot.
   */
  move(to: CallClass, node?: string): boolean;
  /** To be called when the call ends. */
  leave(): void;
}

const unlimitedSlot: CallSlot = { move: () => true, leave: () => undefined };

interface CallLimit {
  readonly key: string;
  readonly max: number;
  readonly reason: RefusalReason;
}

/** Returns the memory of a stream's unread data, in bytes. */
function queuedBytes(stream: ServerHttp2Stream): number {
  if (stream.readableLength === 0) return 0;
  // Node.js does not publish the number of chunks.
  const { buffer }: { readonly buffer: { readonly length: number } } = Reflect.get(stream, "_readableState");
  return stream.readableLength + chunkBytes * buffer.length;
}

const inMebibytes = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MiB`;
