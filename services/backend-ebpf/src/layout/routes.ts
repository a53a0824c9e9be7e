import type { Sender } from "@kpng/service-plan/service-plan.ts";
import { sizes } from "./map-layouts.ts";

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
 * Parts of a route as programs read it: what `FamilyTables` stores in a slot for one kind of sender. Programs read its
 * 8 bytes in one load, and it is replaced in one store, so that its parts change together. The lower 4 bytes are flags
 * and ranges, the upper ones the run.
 */
export interface RouteParts {
  readonly flags: number;
  /** Id of its source ranges; 0 for none. */
  readonly ranges: number;
  /** First element of its run; 0 for none. */
  readonly run: number;
}

/** Returns the routes of a slot of map `slots`, in the order of {@link senders}. */
export function readRoutes(slots: Buffer, slot: number): readonly RouteParts[] {
  return senders.map((_, index) => {
    const at = slot * sizes.slot + index * 8;
    const low = slots.readUInt32LE(at);
    return { flags: low & 0xff, ranges: low >>> 8, run: slots.readUInt32LE(at + 4) };
  });
}

/** Returns true if a route with these flags leads to a run. */
export function isBalancing(flags: number): boolean {
  return (flags & 3) === routeFlags.balance;
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
