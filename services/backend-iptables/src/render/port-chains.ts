import type { EndpointSetName, Route, Sender, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chain-names.ts";

/** The names of a Service port's chains; see the README for the path of a packet through them. */
export interface PortChains {
  /** The chains with the endpoints of each policy, as far as a route leads to them. */
  readonly sets: ReadonlyMap<EndpointSetName, string>;
  /** The chain of all addresses but cluster IPs; undefined if no route from there leads to an endpoint. */
  readonly external: string | undefined;
  /** The chain that lets only some clients pass; rendered if a load-balancer IP has source ranges. */
  readonly firewall: string;
  /** Routes of cluster IPs; undefined if the port has none. */
  readonly internalRoutes: Routes | undefined;
  /** Routes of all other frontends; undefined if the port has none. */
  readonly externalRoutes: Routes | undefined;
}

export type Routes = Readonly<Record<Sender, Route>>;

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
