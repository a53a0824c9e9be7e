import { createHash } from "node:crypto";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { drainingEndpoints } from "@kpng/service-plan/draining-endpoints.ts";
import type {
  EndpointAddress,
  EndpointSetName,
  Frontend,
  NodePlan,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
import { describeKey, frontendKey, isServedProtocol, type KeyText, memberKey } from "../layout/keys.ts";
import { describeRoutes, memberFlags, routeFlags, type SocketOwner, senders } from "../layout/routes.ts";
import { describeRun, encodeRun } from "../layout/runs.ts";

/** A route of a frontend, before its run has a place in the maps. */
export interface WantedRoute {
  /** Combination of `routeFlags`. */
  readonly flags: number;
  /** Bytes of the run; routes with equal runs share one. Undefined unless it balances. */
  readonly run: Buffer | undefined;
}

/** One frontend as the maps should have it. */
export interface WantedFrontend {
  readonly key: KeyText;
  /** The Service port. *Shape:* `default/web:http`. */
  readonly name: string;
  /** In the order of `senders`. */
  readonly routes: readonly WantedRoute[];
}

/** Everything that the maps should have for one Service in one family. */
export interface WantedService {
  readonly frontends: readonly WantedFrontend[];
  /** Flags of members by the text of their key. */
  readonly members: ReadonlyMap<KeyText, number>;
}

/**
 * Translates the plan of a Service into elements of maps. SCTP is left out. `view` tells which endpoints only finish
 * the UDP flows that they have. `FamilyTables` calls it for each Service that may have changed, and `PrintedSockets`
 * for those that it compares. Pure; O(ports × (frontends + endpoints)).
 */
export function wantedService(plan: ServicePlan, view: ServiceView | undefined, node: NodePlan): WantedService {
  const members = new Map<KeyText, number>();
  const frontends = plan.ports.flatMap((port) => {
    const { name, protocol } = port;
    if (!isServedProtocol(protocol)) return [];
    const id = keepsChoices(port) ? portId(plan.family, port) : 0n;
    const runs: Partial<Record<EndpointSetName, Buffer>> = {};
    const runOf = (set: EndpointSetName): Buffer => {
      runs[set] ??= encodeRun(id, port.affinitySeconds ?? 0, port.sets[set]);
      return runs[set];
    };
    if (port.frontends.length > 0) addMembers(members, id, port, view, plan.family);
    const shared: WantedRoute[] = [];
    // Frontends and senders share routes, as those of the plan do: a node may have a hundred thousand.
    const routeOf = (frontend: Frontend, sender: SocketOwner): WantedRoute => {
      const route = wantedRoute(frontend, sender, port, node, runOf);
      const { flags, run } = route;
      const same = shared.find((one) => one.flags === flags && one.run === run);
      if (same === undefined) shared.push(route);
      return same ?? route;
    };
    let previous: Frontend | undefined;
    let routes: readonly WantedRoute[] = [];
    return port.frontends.map((frontend) => {
      if (!haveSameRoutes(previous, frontend)) routes = senders.map((sender) => routeOf(frontend, sender));
      previous = frontend;
      const { address, port: number } = frontend;
      return { key: frontendKey(plan.family, { address, protocol, port: number }), name, routes };
    });
  });
  // A copy, because an array that has grown has room for more.
  return { frontends: frontends.slice(), members: members.size === 0 ? noMembers : members };
}

/** Shared by all Services: most have no members. */
const noMembers: ReadonlyMap<KeyText, number> = new Map();

/**
 * Returns a line for inspection. *Shape:* `TCP 10.96.0.1:80 pod,node balance 10.1.1.11:8080 # default/web`.
 */
export function describeFrontend({ key, name, routes }: WantedFrontend): string {
  const described = routes.map((route) => ({ ...route, endpoints: describeRun(route.run) }));
  return `${describeKey(key)} ${describeRoutes(described)} # ${name}`;
}

/** Identifies a Service port for as long as it has this name; clients with affinity are remembered under it. */
function portId(family: Family, { name, protocol }: ServicePortPlan): bigint {
  return createHash("sha256").update(`${family} ${protocol} ${name}`).digest().readBigUInt64LE(0);
}

function haveSameRoutes(one: Frontend | undefined, { routes, sources, kind }: Frontend): boolean {
  const isOfSameKind = (one?.kind === "clusterIP") === (kind === "clusterIP");
  return one?.routes === routes && one.sources === sources && isOfSameKind;
}

function wantedRoute(
  frontend: Frontend,
  sender: SocketOwner,
  { affinitySeconds }: ServicePortPlan,
  node: NodePlan,
  runOf: (set: EndpointSetName) => Buffer,
): WantedRoute {
  const { kind, sources, routes } = frontend;
  const route = routes[sender === "pod" && node.podTraffic === undefined ? "outside" : sender];
  // A socket cannot be masqueraded, and has no source address yet. Rules compare it also where there is no endpoint.
  const isMasqueraded = sender === "pod" && node.isMasqueradeAll && kind === "clusterIP";
  if (route.kind === "drop" || sources !== undefined || isMasqueraded) {
    return { flags: routeFlags.leave, run: undefined };
  }
  if (route.kind === "refuse") return { flags: routeFlags.refuse, run: undefined };
  const flags =
    routeFlags.balance |
    (route.set === "local" ? routeFlags.local : 0) |
    (affinitySeconds === undefined ? 0 : routeFlags.affinity);
  return { flags, run: runOf(route.set) };
}

/** True where a choice is remembered: for clients with affinity, and for UDP flows of sockets. */
const keepsChoices = ({ affinitySeconds, protocol }: ServicePortPlan): boolean =>
  affinitySeconds !== undefined || protocol === "UDP";

/** Adds the endpoints that a remembered choice may be. */
function addMembers(
  members: Map<KeyText, number>,
  id: bigint,
  port: ServicePortPlan,
  view: ServiceView | undefined,
  family: Family,
): void {
  if (!keepsChoices(port)) return;
  const isUdp = port.protocol === "UDP";
  const add = (endpoints: readonly EndpointAddress[], flag: number): void => {
    for (const endpoint of endpoints) {
      const key = memberKey(id, endpoint);
      members.set(key, (members.get(key) ?? 0) | flag | (isUdp ? memberFlags.udp : 0));
    }
  };
  add(port.sets.cluster, memberFlags.inCluster);
  add(port.sets.local, memberFlags.inLocal);
  if (isUdp) add(drainingEndpoints(view, port, family), memberFlags.keepsFlows);
}
