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
  encodeRun,
  familyOf,
  frontendKey,
  type KeyText,
  readRoutes,
  routeKinds,
  type SocketOwner,
  type SocketRoute,
  senders,
  sizes,
  slotKeyPlace,
} from "../layout/layout.ts";

/** A frontend that the maps should contain. */
export interface DesiredFrontend {
  readonly key: KeyText;
  /** Name of the Service port. *Shape:* `default/web:http`. */
  readonly name: string;
  /** In the order of `senders`. Routes with equal runs share a buffer. */
  readonly routes: readonly SocketRoute[];
}

/**
 * Translates the plan of a Service in one family into map elements. UDP and SCTP are left out, so that programs leave
 * them to the rules. Pure; O(ports × (frontends + endpoints)).
 */
export function desiredFrontends(plan: ServicePlan, node: NodePlan): readonly DesiredFrontend[] {
  return plan.ports.flatMap((port) => {
    if (port.protocol !== "TCP") return [];
    const runs: Partial<Record<EndpointSetName, Buffer>> = {};
    const runOf = (set: EndpointSetName): Buffer => {
      runs[set] ??= encodeRun(port.sets[set]);
      return runs[set];
    };
    return port.frontends.map((frontend) => ({
      key: frontendKey(plan.family, frontend),
      name: port.name,
      routes: senders.map((sender) => desiredRoute(frontend, sender, port, node, runOf)),
    }));
  });
}

/** Describes the element of a frontend. *Shape:* `TCP 10.96.0.1:80 pod,node balance 10.1.1.11:8080`. */
export function describeElement({ key, routes }: Pick<DesiredFrontend, "key" | "routes">): string {
  return `${describeKey(key)} ${describeRoutes(routes)}`;
}

/** Describes a frontend with its Service port. *Shape:* `TCP 10.96.0.1:80 pod,node leave # default/web`. */
export function describeFrontend(frontend: DesiredFrontend): string {
  return `${describeElement(frontend)} # ${frontend.name}`;
}

function desiredRoute(
  frontend: Frontend,
  sender: SocketOwner,
  { affinitySeconds }: ServicePortPlan,
  node: NodePlan,
  runOf: (set: EndpointSetName) => Buffer,
): SocketRoute {
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

/** Describes installed frontends as {@link describeElement} does, keyed by frontend. Pure. */
export function describeInstalled(family: Family, contents: MapContents): ReadonlyMap<KeyText, string> {
  const elements = [...readSlots(family, contents)].map(([key, slot]) => {
    const routes = readRoutes(contents.slots, slot, contents.endpoints);
    return [key, describeElement({ key, routes })] as const;
  });
  return new Map(elements);
}

/** A frontend that differs. `before` and `after` describe it, e.g. as `describeElement` does. */
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
  /** At most `maxDescribed`, except with `--diff`, which prints all of them. */
  readonly frontends: readonly FrontendDifference[];
  readonly counts: { readonly written: number; readonly deleted: number };
  /** Differences in the state that both families share, one line each. *Shape:* `program connect4 attached`. */
  readonly shared: readonly string[];
}

/** Maximum number of frontends that are described in a change. A first sync may have a hundred thousand. */
export const maxDescribed = 1_000;

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
