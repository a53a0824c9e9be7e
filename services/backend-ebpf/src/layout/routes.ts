import type { EndpointSetName, Sender } from "@kpng/service-plan/service-plan.ts";

/** Senders in the order of their routes in a slot. */
export const senders: readonly Sender[] = ["pod", "node", "outside"];

/** Bits 0 to 7 of a route. Source: lb.bpf.c. */
export const routeFlags = {
  balance: 1,
  refuse: 2,
  drop: 3,
  local: 4,
  masquerade: 8,
  affinity: 16,
  packetsOnly: 32,
} as const;

/** Bits of a member. Source: lb.bpf.c, but for `udp`, which tells this program that sockets may be connected to it. */
export const memberFlags = { inCluster: 1, inLocal: 2, keepsFlows: 4, udp: 8 } as const;

/**
 * A route as programs read it: what `FamilyTables` stores in a slot for one kind of sender. Programs read it in one
 * load. It is replaced in one store, so that its parts change together.
 */
export type RouteWord = bigint;

/** Returns the word of a route; `run` and `ranges` are 0 if it has none. */
export function encodeRoute(flags: number, ranges: number, run: number): RouteWord {
  return (BigInt(run) << 32n) | BigInt(ranges * 256 + flags);
}

/** Parts of a route. */
export interface RouteParts {
  readonly flags: number;
  /** Id of its source ranges; 0 for none. */
  readonly ranges: number;
  /** First element of its run; 0 for none. */
  readonly run: number;
}

export function decodeRoute(word: RouteWord): RouteParts {
  const low = Number(word & 0xffff_ffffn);
  return { flags: low & 0xff, ranges: low >>> 8, run: Number(word >> 32n) };
}

/** Name of the set that a balancing route with these flags leads to. */
export function setOf(flags: number): EndpointSetName {
  return (flags & routeFlags.local) === 0 ? "cluster" : "local";
}

/** A route for inspection. */
export interface DescribedRoute {
  readonly flags: number;
  /** *Shape:* `10.1.1.11:8080`. */
  readonly endpoints: readonly string[];
  /** Source ranges that may use it; empty for all. */
  readonly ranges: readonly string[];
}

/**
 * Describes the routes of a frontend, those of senders with the same route together. *Shape:* `pod,node balance
 * 10.1.1.11:8080; outside balance masquerade 10.1.1.11:8080 for 192.0.2.0/24`.
 */
export function describeRoutes(routes: readonly DescribedRoute[]): string {
  const bySender = new Map<string, Sender[]>();
  for (const [index, route] of routes.entries()) {
    const sender = senders[index];
    const text = describeRoute(route);
    if (sender !== undefined) bySender.set(text, [...(bySender.get(text) ?? []), sender]);
  }
  return [...bySender].map(([text, names]) => `${names.join(",")} ${text}`).join("; ");
}

function describeRoute({ flags, endpoints, ranges }: DescribedRoute): string {
  const kind = flags & 3;
  if (kind === routeFlags.refuse) return "refuse";
  if (kind === routeFlags.drop) return "drop";
  if (kind !== routeFlags.balance) return "none";
  const properties = (["local", "masquerade", "affinity", "packetsOnly"] as const).filter(
    (name) => (flags & routeFlags[name]) !== 0,
  );
  const allowed = ranges.length === 0 ? [] : ["for", ...[...ranges].sort()];
  return ["balance", ...properties, ...endpoints, ...allowed].join(" ");
}
