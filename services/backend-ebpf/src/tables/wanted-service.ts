import type {
  EndpointSetName,
  Frontend,
  NodePlan,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
import { describeKey, frontendKey, type KeyText } from "../layout/keys.ts";
import { describeRoutes, routeKinds, type SocketOwner, senders } from "../layout/routes.ts";
import { describeRun, encodeRun } from "../layout/runs.ts";

/** A route of a frontend, before its run has a place in the maps. */
export interface WantedRoute {
  /** One of `routeKinds`. */
  readonly kind: number;
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

/**
 * Translates the plan of a Service in one family into elements of maps. UDP and SCTP are left out, so that programs leave them to the
 * rules. `FamilyTables` calls it for each Service that may have changed, and `PrintedSockets` for those that it
 * compares. Pure; O(ports × (frontends + endpoints)).
 */
export function wantedFrontends(plan: ServicePlan, node: NodePlan): readonly WantedFrontend[] {
  const frontends = plan.ports.flatMap((port) => {
    const { name, protocol } = port;
    if (protocol !== "TCP") return [];
    const runs: Partial<Record<EndpointSetName, Buffer>> = {};
    const runOf = (set: EndpointSetName): Buffer => {
      runs[set] ??= encodeRun(port.sets[set]);
      return runs[set];
    };
    const shared: WantedRoute[] = [];
    // Frontends and senders share routes, as those of the plan do: a node may have a hundred thousand.
    const routeOf = (frontend: Frontend, sender: SocketOwner): WantedRoute => {
      const route = wantedRoute(frontend, sender, port, node, runOf);
      const { kind, run } = route;
      const same = shared.find((one) => one.kind === kind && one.run === run);
      if (same === undefined) shared.push(route);
      return same ?? route;
    };
    let previous: Frontend | undefined;
    let routes: readonly WantedRoute[] = [];
    return port.frontends.map((frontend) => {
      if (!haveSameRoutes(previous, frontend)) routes = senders.map((sender) => routeOf(frontend, sender));
      previous = frontend;
      return { key: frontendKey(plan.family, frontend), name, routes };
    });
  });
  // A copy, because an array that has grown has room for more.
  return frontends.slice();
}

/**
 * Returns a line for inspection. *Shape:* `TCP 10.96.0.1:80 pod,node balance 10.1.1.11:8080 # default/web`.
 */
export function describeFrontend({ key, name, routes }: WantedFrontend): string {
  const described = routes.map((route) => ({ ...route, endpoints: describeRun(route.run) }));
  return `${describeKey(key)} ${describeRoutes(described)} # ${name}`;
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
  // With affinity, a client has one endpoint whether a socket or a packet asks: the rules remember it.
  if (route.kind === "drop" || sources !== undefined || isMasqueraded || affinitySeconds !== undefined) {
    return { kind: routeKinds.leave, run: undefined };
  }
  if (route.kind === "refuse") return { kind: routeKinds.refuse, run: undefined };
  return { kind: routeKinds.balance, run: runOf(route.set) };
}
