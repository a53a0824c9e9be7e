import type { RuleChange, RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncMode } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type {
  EndpointSetName,
  Frontend,
  NodePlan,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
import {
  describeKey,
  describeRoutes,
  describeRun,
  encodeRun,
  familyOf,
  frontendKey,
  type KeyText,
  readRoutes,
  routeKinds,
  runBytes,
  type SocketOwner,
  senders,
  sizes,
  slotKeyPlace,
} from "../layout/layout.ts";

/** A route of a frontend whose run has not been placed in the maps yet. */
interface DesiredRoute {
  /** One of `routeKinds`. */
  readonly kind: number;
  /** Bytes of the run, which routes with equal runs share. Undefined unless the route balances. */
  readonly run: Buffer | undefined;
}

/** A frontend that the maps should contain. */
export interface DesiredFrontend {
  readonly key: KeyText;
  /** Name of the Service port. *Shape:* `default/web:http`. */
  readonly name: string;
  /** In the order of `senders`. */
  readonly routes: readonly DesiredRoute[];
}

/**
 * Translates the plan of a Service in one family into map elements. UDP and SCTP are left out, so that programs leave
 * them to the rules. Pure; O(ports × (frontends + endpoints)).
 */
export function desiredFrontends(plan: ServicePlan, node: NodePlan): readonly DesiredFrontend[] {
  const frontends = plan.ports.flatMap((port) => {
    const { name, protocol } = port;
    if (protocol !== "TCP") return [];
    const runs: Partial<Record<EndpointSetName, Buffer>> = {};
    const runOf = (set: EndpointSetName): Buffer => {
      runs[set] ??= encodeRun(port.sets[set]);
      return runs[set];
    };
    const shared: DesiredRoute[] = [];
    // Let frontends and senders share route objects, as in the plan, because a node may have a hundred thousand
    // frontends.
    const routeOf = (frontend: Frontend, sender: SocketOwner): DesiredRoute => {
      const route = desiredRoute(frontend, sender, port, node, runOf);
      const { kind, run } = route;
      const same = shared.find((one) => one.kind === kind && one.run === run);
      if (same === undefined) shared.push(route);
      return same ?? route;
    };
    let previous: Frontend | undefined;
    let routes: readonly DesiredRoute[] = [];
    return port.frontends.map((frontend) => {
      if (!haveSameRoutes(previous, frontend)) routes = senders.map((sender) => routeOf(frontend, sender));
      previous = frontend;
      return { key: frontendKey(plan.family, frontend), name, routes };
    });
  });
  // Return a copy, because an array that has grown keeps unused capacity.
  return frontends.slice();
}

/**
 * Returns a line for inspection. *Shape:* `TCP 10.96.0.1:80 pod,node balance 10.1.1.11:8080 # default/web`.
 */
export function describeFrontend({ key, name, routes }: DesiredFrontend): string {
  const described = routes.map((route) => ({ ...route, endpoints: describeRun(route.run) }));
  return `${describeKey(key)} ${describeRoutes(described)} # ${name}`;
}

function haveSameRoutes(one: Frontend | undefined, { routes, sources, kind }: Frontend): boolean {
  const isOfSameKind = (one?.kind === "clusterIP") === (kind === "clusterIP");
  return one?.routes === routes && one.sources === sources && isOfSameKind;
}

function desiredRoute(
  frontend: Frontend,
  sender: SocketOwner,
  { affinitySeconds }: ServicePortPlan,
  node: NodePlan,
  runOf: (set: EndpointSetName) => Buffer,
): DesiredRoute {
  const { kind, sources, routes } = frontend;
  // Rules that cannot recognize pods treat them as outside clients, and so must sockets.
  const route = routes[sender === "pod" && node.podTraffic === undefined ? "outside" : sender];
  // Connections that must be masqueraded, or whose source address must be checked, are left to the rules: a socket
  // cannot be masqueraded, and it has no source address yet. The rules check the source even if there is no endpoint.
  // `route.isMasqueraded` alone does not count, because the connection goes directly to the endpoint, whose answers come
  // back directly; `isMasqueradeAll` concerns cluster IPs only.
  const isMasqueraded = sender === "pod" && node.isMasqueradeAll && kind === "clusterIP";
  // With affinity, a client must always get the same endpoint, which only the rules remember.
  if (route.kind === "drop" || sources !== undefined || isMasqueraded || affinitySeconds !== undefined) {
    return { kind: routeKinds.leave, run: undefined };
  }
  if (route.kind === "refuse") return { kind: routeKinds.refuse, run: undefined };
  return { kind: routeKinds.balance, run: runOf(route.set) };
}

/** The contents of the maps, either read or mapped into memory. */
export interface MapContents {
  /** Elements of map `frontends`. */
  readonly frontends: readonly (readonly [key: Buffer, value: Buffer])[];
  readonly slots: Buffer;
  readonly endpoints: Buffer;
}

/** Returns the slots of a family, keyed by frontend. Slots that contain a different key are left out. Pure. */
export function readSlots(family: Family, { frontends, slots }: MapContents): ReadonlyMap<KeyText, number> {
  const slotsByKey = new Map<KeyText, number>();
  for (const [key, value] of frontends) {
    const slot = value.readUInt32LE(0);
    const at = slot * sizes.slot + slotKeyPlace;
    if (familyOf(key) !== family || at + sizes.frontendKey > slots.length) continue;
    if (key.compare(slots, at, at + sizes.frontendKey) === 0) slotsByKey.set(key.toString("latin1"), slot);
  }
  return slotsByKey;
}

/** Describes installed frontends as `describeFrontend` does, but without names, keyed by frontend. Pure. */
export function describeInstalled(family: Family, contents: MapContents): ReadonlyMap<KeyText, string> {
  const lines = new Map<KeyText, string>();
  for (const [key, slot] of readSlots(family, contents)) {
    const routes = readRoutes(contents.slots, slot).map((route) => {
      const run = route.kind === routeKinds.balance ? runBytes(contents.endpoints, route.run) : undefined;
      return { ...route, endpoints: describeRun(run) };
    });
    lines.set(key, `${describeKey(key)} ${describeRoutes(routes)}`);
  }
  return lines;
}

/** A frontend that differs. `before` and `after` are lines from `describeFrontend`. */
export interface FrontendDifference {
  /** *Shape:* `TCP 10.96.0.1:80`. */
  readonly place: string;
  /** Undefined if it was not installed. */
  readonly before: string | undefined;
  /** Undefined if it is not desired. */
  readonly after: string | undefined;
}

/** Parts of a change. */
export interface ChangeParts {
  /** At most `maxDescribed` written and as many deleted ones, except with `--diff`, which prints all of them. */
  readonly frontends: readonly FrontendDifference[];
  readonly counts: { readonly written: number; readonly deleted: number };
  /** Differences in the state that both families share, one line each. *Shape:* `program connect4 attached`. */
  readonly shared: readonly string[];
}

/** Maximum number of frontends that are described in a change. A first sync may have a hundred thousand. */
export const maxDescribed = 1_000;

/** Returns a change for the kit. Pure. */
export function makeEbpfChange(family: Family, mode: SyncMode, { frontends, counts, shared }: ChangeParts): RuleChange {
  const isChanged = counts.written + counts.deleted + shared.length > 0;
  const differences = (): readonly RuleDifference[] => [
    ...shared.map((summary) => ({ summary, missing: [], unwanted: [], fields: { part: "node" } })),
    ...frontends.map(({ place, before, after }) => ({
      summary: `${place}: ${before === undefined ? "missing" : after === undefined ? "not desired" : "differs"}`,
      missing: after === undefined ? [] : [after],
      unwanted: before === undefined ? [] : [before],
      fields: { part: "frontends", frontend: place },
    })),
  ];
  return {
    mode: isChanged ? mode : "none",
    fields: { family, ...counts, example: shared[0] ?? frontends[0]?.place },
    differences,
  };
}
