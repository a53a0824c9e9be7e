import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Rights } from "../identity/rights.ts";
import type { DefaultLimits } from "./default-limits.ts";
import { Rate } from "./rate.ts";
import type { RefusalReason, Refusals } from "./refusals.ts";
import type { RequestMemory } from "./request-memory.ts";

/**
 * The classes of calls. Each has a share of its own of the calls in progress, so that no class can keep out another.
 *
 * | Class | Calls | Share |
 * |---|---|---|
 * | `nodes` | of nodes and relays: Watch, and the question for a position, of clients with a right | `--max-calls` |
 * | `people` | other calls of clients with a right: inspection, views, reflection, pages | `--max-queries` |
 * | `open` | of clients without any right | as many again |
 * | `health` | watches of health, which need no right and have no end | as many again |
 * | `probes` | single health checks, which need no right | a quarter of `--max-calls` |
 * | `unproven` | whose token is being checked; then they change their class | a quarter of `--max-calls` |
 */
export type CallClass = "nodes" | "people" | "open" | "health" | "probes" | "unproven";

/** Returns the class of a call that has these rights. */
export function classOf(url: string | undefined, { nodes, hasState, hasInspection }: Rights): CallClass {
  const method = /^\/([^/?]+)\/([^/?]*)/.exec(url ?? "");
  const [, service = "", name] = method ?? [];
  if (service === "grpc.health.v1.Health") return name === "Watch" ? "health" : "probes";
  if (nodes !== "all" && nodes.size === 0 && !hasState && !hasInspection) return "open";
  return /^(localv1\.Sets|globalv1\.Sets|kpng\.position\.v1\.PositionService)$/.test(service) ? "nodes" : "people";
}

/** Returns the node whose right a client has, or its nodes; undefined for clients with rights to more, or to none. */
export function nodeOf({ nodes, hasState }: Rights): string | undefined {
  return nodes === "all" || nodes.size === 0 || hasState ? undefined : [...nodes].sort().join(" ");
}

/**
 * Maximum size of the headers of a call, in bytes: that of Node.js for HTTP/1.1. Node.js itself allows 64 KiB over
 * HTTP/2, which a call would keep in memory; tokens of ServiceAccounts have 1 to 2 KiB.
 */
const maxHeaderBytes = 16 * 1024;

/**
 * Calls that a connection may have in progress, with those that were refused, when a further one is refused: nodes have
 * one or two. A connection with more is ended, because each refusal alone takes 0.1 ms and 10 KiB.
 */
const fewCalls = 8;

/**
 * Calls that a connection may begin at once, and then per second; further ones wait. A node or a relay begins one or
 * two. The pages of a long list are one call each, and proxies carry the calls of many clients on a connection.
 *
 * A call that ends at once takes 0.2 ms. A connection has at most 100 calls at a time, and `makeServer` limits how many
 * a client may cancel, so few calls wait, for a second or two.
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

/** Calls of the classes `people`, `open` and `health` that a connection may have in progress, of each class. */
const maxPerConnection = 32;

/**
 * Admits calls over TCP by their class, and those of single nodes also by node: otherwise, one node could take the
 * places of all others, or their memory. Clients of unix sockets are not limited, so that an operator on the machine can
 * still query the watcher.
 *
 * *Bound:* the shares of the classes, and one entry for each connection. A call holds at most 16 KiB of headers;
 * `RequestMemory` limits what it holds of requests.
 */
export class Admission {
  readonly #shares: Readonly<Record<CallClass, number>>;
  readonly #memory: RequestMemory;
  readonly #refusals: Refusals;
  readonly #open = new Map<CallClass, number>();
  readonly #openByNode = new Map<string, number>();
  readonly #byCarrier = new WeakMap<object, CarrierCalls>();

  constructor({ maxCalls, maxQueries }: CallLimits, memory: RequestMemory, refusals: Refusals) {
    const quarter = Math.ceil(maxCalls / 4);
    this.#shares = {
      nodes: maxCalls,
      unproven: quarter,
      probes: quarter,
      people: maxQueries,
      open: maxQueries,
      health: maxQueries,
    };
    this.#memory = memory;
    this.#refusals = refusals;
  }

  /**
   * Calls `begin` for a call over HTTP/2: now, or when its connection may begin another call. Ends the connection if
   * the headers are very large, or if it has many calls waiting. `peer` is the address of the client, "" for a unix
   * socket.
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
    this.#memory.add(stream);
    if (waitMs === 0) {
      begin();
      return;
    }
    const timer = setTimeout(begin, waitMs).unref();
    stream.once("close", () => clearTimeout(timer));
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

  /** Ends a refused call over HTTP/2 with a code that lets gRPC clients retry, or its connection if it has many. */
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

  #refusalOf(callClass: CallClass, { byClass }: CarrierCalls, node: string | undefined): RefusalReason | undefined {
    const limit = callClass === "people" ? maxPerNode.people : maxPerNode.nodes;
    if (node !== undefined && (this.#openByNode.get(placeOf(callClass, node)) ?? 0) >= limit) return "node-calls";
    const isAnswered = isAnsweredWhenRefused(callClass);
    if (isAnswered && (byClass.get(callClass) ?? 0) >= maxPerConnection) return "connection-queries";
    if ((this.#open.get(callClass) ?? 0) < this.#shares[callClass]) return undefined;
    return callClass === "people" ? "queries" : isAnswered ? "open-calls" : "calls";
  }

  #add(callClass: CallClass, { byClass }: CarrierCalls, node: string | undefined, count: 1 | -1): void {
    for (const counts of [this.#open, byClass]) counts.set(callClass, (counts.get(callClass) ?? 0) + count);
    if (node === undefined) return;
    const place = placeOf(callClass, node);
    const ofNode = (this.#openByNode.get(place) ?? 0) + count;
    if (ofNode === 0) this.#openByNode.delete(place);
    else this.#openByNode.set(place, ofNode);
  }

  #callsOf(carrier: object): CarrierCalls {
    return getOrMake(this.#byCarrier, carrier, () => {
      return { byClass: new Map(), refused: 0, rate: new Rate(callBurst, callsPerSecond) };
    });
  }
}

const placeOf = (callClass: CallClass, node: string): string => `${callClass} ${node}`;

/** True for the classes whose refused calls get RESOURCE_EXHAUSTED; the others can be retried on another connection. */
export function isAnsweredWhenRefused(callClass: CallClass): boolean {
  return callClass === "people" || callClass === "open" || callClass === "health";
}

/** The place of a call in the share of its class. */
export interface CallSlot {
  /** Changes the class and node of the call; false if these have as many as they may: then the call has no place. */
  move(to: CallClass, node?: string): boolean;
  /** Gives the place back. */
  leave(): void;
}

type CallLimits = Pick<DefaultLimits, "maxCalls" | "maxQueries">;

/** The calls of a connection: those in progress by class, and the number of refused ones. */
interface CarrierCalls {
  readonly byClass: Map<CallClass, number>;
  refused: number;
  readonly rate: Rate;
}

const freeSlot: CallSlot = { move: () => true, leave: () => undefined };

function endSession(session: Http2Session): void {
  // `destroy` alone would send NO_ERROR; with a code, it would report an error of the session.
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  session.destroy();
}
