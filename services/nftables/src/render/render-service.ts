import type {
  AllowedSources,
  EndpointSetName,
  Frontend,
  Route,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
import { addressBytes, type ElementBytes, numberBytes, portBytes, protocolBytes } from "../layout/element-keys.ts";
import { type FrontendKind, packSet } from "../layout/packed-set.ts";
import type { SharedSet } from "../layout/set-names.ts";

/** The id of a port's endpoint set and the number of endpoints in it. */
export interface NumberedSet {
  readonly id: number;
  readonly count: number;
}

/** One element that a Service adds to a set. */
export interface ServiceElement {
  readonly set: SharedSet;
  readonly key: ElementBytes;
  readonly value: ElementBytes;
  /** The Service port, for `nft list`. */
  readonly comment?: string | undefined;
}

/** Ids of sets and names of chains that elements refer to; `ServiceElements` provides them. */
export interface RenderedParts {
  /** Returns the id and size of an endpoint set of a port; called only for sets in {@link usedSets}. */
  readonly numbered: (port: ServicePortPlan, set: EndpointSetName) => NumberedSet;
  /** Returns the name of the chain that drops packets from all but these sources. */
  readonly rangesChain: (sources: AllowedSources) => string;
}

/** Returns the sets that some route of a port leads to. */
export function usedSets({ frontends }: ServicePortPlan): ReadonlySet<EndpointSetName> {
  const routes = frontends.flatMap((frontend) => Object.values(frontend.routes));
  return new Set(routes.flatMap((route) => (route.kind === "balance" ? [route.set] : [])));
}

/**
 * Renders the elements of one Service, except the slots with its endpoints, which `EndpointSets` keeps.
 * `ServiceElements` calls it for each changed Service. Rules that do not depend on Services are in `skeleton.ts`. Pure;
 * O(frontends).
 */
export function renderService(plan: ServicePlan, { numbered, rangesChain }: RenderedParts): readonly ServiceElement[] {
  return [
    ...plan.ports.flatMap((port) =>
      port.frontends.flatMap((frontend) => renderFrontend(port, frontend, (set) => numbered(port, set), rangesChain)),
    ),
    ...plan.hairpin.map((address): ServiceElement => {
      const bytes = addressBytes(address);
      return { set: "hairpin", key: bytes + bytes, value: "" };
    }),
  ];
}

function renderFrontend(
  port: ServicePortPlan,
  { kind, address, protocol, port: number, routes, sources }: Frontend,
  numbered: (set: EndpointSetName) => NumberedSet,
  rangesChain: (sources: AllowedSources) => string,
): readonly ServiceElement[] {
  const isNodePort = address === undefined;
  const key = (isNodePort ? "" : addressBytes(address)) + protocolBytes(protocol) + portBytes(number);
  const comment = port.name;
  const elements: ServiceElement[] = [];
  const add = (set: SharedSet, value: ElementBytes): void => void elements.push({ set, key, value, comment });
  const { inside, outside } = twoRoutes(routes);
  if (inside.route !== undefined) {
    const set = numbered(inside.route.set);
    add(isNodePort ? "nodeports" : "frontends", numberBytes(packSet({ ...set, kind: inside.kind })));
  }
  if (outside.kind === "balance" && inside.kind === "local") {
    const set = numbered(outside.set);
    const value = numberBytes(packSet({ ...set, kind: "plain" }));
    add(isNodePort ? "local_nodeports" : "local_frontends", value);
  }
  if (outside.kind === "refuse") add(isNodePort ? "refused_nodeports" : "refused", "");
  if (outside.kind === "drop") add(isNodePort ? "dropped_nodeports" : "dropped", "");
  if (sources !== undefined) add("firewall", rangesChain(sources));
  if (kind === "clusterIP" && address !== undefined) {
    elements.push({ set: "cluster_ips", key: addressBytes(address), value: "" });
  }
  return elements;
}

type BalanceRoute = Extract<Route, { kind: "balance" }>;

/** The routes of a frontend in the two forms that rules know: one set for all senders, or another one for outside. */
function twoRoutes({ pod, node, outside }: Frontend["routes"]): {
  readonly inside: { readonly route: BalanceRoute | undefined; readonly kind: FrontendKind };
  readonly outside: Route;
} {
  if (pod.kind !== "balance") return { inside: { route: undefined, kind: "plain" }, outside };
  const isOneSet = outside.kind === "balance" && outside.set === pod.set;
  if (!isOneSet) return { inside: { route: pod, kind: "local" }, outside };
  const isNodeMasqueraded = node.kind === "balance" && node.isMasqueraded;
  const kind = pod.isMasqueraded ? "masquerade" : isNodeMasqueraded ? "masqueradeUnlessPod" : "plain";
  return { inside: { route: pod, kind }, outside };
}
