import { sizes } from "./map-layouts.ts";

/** Whose socket it is. */
export type SocketOwner = "pod" | "node";

/** Owners in the order of their routes in a slot. */
export const senders: readonly SocketOwner[] = ["pod", "node"];

/** Bits 0 to 31 of a route; `leave` leaves the packets to the rules. Source: lb.bpf.c. */
export const routeKinds = { balance: 1, refuse: 2, leave: 3 } as const;

/**
 * Parts of a route as programs read it: what `FamilyTables` stores in a slot for one kind of sender. Programs read its
 * 8 bytes in one load, and it is replaced in one store, so that its parts change together. The lower 4 bytes are the
 * kind, the upper ones the run.
 */
export interface RouteParts {
  /** One of {@link routeKinds}, in maps that nobody damaged. */
  readonly kind: number;
  /** First element of its run; 0 for none. */
  readonly run: number;
}

/** Returns the routes of a slot of map `slots`, in the order of {@link senders}. */
export function readRoutes(slots: Buffer, slot: number): readonly RouteParts[] {
  return senders.map((_, index) => {
    const at = slot * sizes.slot + index * 8;
    return { kind: slots.readUInt32LE(at), run: slots.readUInt32LE(at + 4) };
  });
}

/** A route for inspection. */
export interface DescribedRoute {
  readonly kind: number;
  /** *Shape:* `10.1.1.11:8080`. */
  readonly endpoints: readonly string[];
}

/**
 * Describes the routes of a frontend, those of senders with the same route together. *Shape:* `pod leave; node balance
 * 10.1.1.11:8080`.
 */
export function describeRoutes(routes: readonly DescribedRoute[]): string {
  const bySender = new Map<string, SocketOwner[]>();
  for (const [index, route] of routes.entries()) {
    const sender = senders[index];
    const text = describeRoute(route);
    if (sender !== undefined) bySender.set(text, [...(bySender.get(text) ?? []), sender]);
  }
  return [...bySender].map(([text, names]) => `${names.join(",")} ${text}`).join("; ");
}

function describeRoute({ kind, endpoints }: DescribedRoute): string {
  if (kind === routeKinds.refuse) return "refuse";
  if (kind === routeKinds.leave) return "leave";
  return kind === routeKinds.balance ? ["balance", ...endpoints].join(" ") : "none";
}
