import type { EndpointSetName, Route, Sender, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chain-names.ts";

/**
 * The names of a Service port's chains, and the routes that decide which of these chains exist. Packets reach them from
 * the chains that all Services share, e.g. SERVICES.
 */
export interface PortChains {
  /** The chains that choose an endpoint, one per set of endpoints ("cluster", "local") that some route uses. */
  readonly sets: ReadonlyMap<EndpointSetName, string>;
  /** The chain for packets to all frontends but cluster IPs; undefined if none of `externalRoutes` has an endpoint. */
  readonly external: string | undefined;
  /** The chain that admits only clients in source ranges. It exists only if a load-balancer IP has source ranges. */
  readonly firewall: string;
  /** Routes of cluster IPs; undefined if the port has none. */
  readonly internalRoutes: Routes | undefined;
  /** Routes of all other frontends; undefined if the port has none. */
  readonly externalRoutes: Routes | undefined;
}

/** The route of packets from each kind of sender. */
export type Routes = Readonly<Record<Sender, Route>>;

/**
 * Names the chains of a Service port. `renderService` calls it once per port and passes the result to all renderers, so
 * that the jump to a chain and the chain itself have the same name. Separate from `ChainNames`, which forms names but
 * does not know which chains a port needs.
 */
export function portChains({ name, protocol, frontends }: ServicePortPlan, names: ChainNames): PortChains {
  const chain = names.ofServicePort(name, protocol);
  const internalRoutes = frontends.find(({ kind }) => kind === "clusterIP")?.routes;
  const externalRoutes = frontends.find(({ kind }) => kind !== "clusterIP")?.routes;
  const used = new Set([...usedSets(internalRoutes), ...usedSets(externalRoutes)]);
  const sets = new Map<EndpointSetName, string>();
  if (used.has("cluster")) sets.set("cluster", chain("SVC"));
  if (used.has("local")) sets.set("local", chain("SVL"));
  const isServed = usedSets(externalRoutes).length > 0;
  return { sets, external: isServed ? chain("EXT") : undefined, firewall: chain("FW"), internalRoutes, externalRoutes };
}

function usedSets(routes: Routes | undefined): readonly EndpointSetName[] {
  if (routes === undefined) return [];
  return [routes.pod, routes.node, routes.outside].flatMap((route) => (route.kind === "balance" ? route.set : []));
}
