import { FrontendClaims, type FrontendId, frontendId } from "./frontend-claims.ts";
import type { Frontend, NodePlan, ServicePlan, ServicePortPlan } from "./service-plan.ts";

/** A frontend with the plans that it belongs to. */
export interface PlannedFrontend {
  readonly service: ServicePlan;
  readonly port: ServicePortPlan;
  readonly frontend: Frontend;
}

/** All plans of one node in one family, indexed so that `outcomes` finds the frontend of a packet. */
export interface PlannedNode {
  readonly node: NodePlan;
  /** CIDRs of the node's own addresses, loopback included. */
  readonly localCIDRs: readonly string[];
  /** Each frontend once, with the Service that is served if several claim it. */
  readonly frontends: ReadonlyMap<FrontendId, PlannedFrontend>;
  /** Addresses of frontends that are cluster IPs. */
  readonly clusterIPs: ReadonlySet<string>;
  /** TCP ports for health checks of load balancers. */
  readonly healthCheckPorts: ReadonlySet<number>;
}

/**
 * Indexes the plans of a node. Tests call it; backends do not, because rules need
 * no index. Separate from `outcomes`, which looks up many packets in one index. Pure; O(frontends). The plans stay in
 * memory as long as the result.
 */
export function indexPlans(node: NodePlan, localCIDRs: readonly string[], plans: Iterable<ServicePlan>): PlannedNode {
  const frontends = new Map<FrontendId, PlannedFrontend>();
  const healthCheckPorts = new Set<number>();
  const clusterIPs = new Set<string>();
  const claims = new FrontendClaims();
  const kept = [...plans];
  for (const plan of kept) claims.put(plan);
  for (const service of kept) {
    if (service.healthCheck !== undefined) healthCheckPorts.add(service.healthCheck.port);
    for (const port of service.ports) {
      for (const frontend of port.frontends) {
        const id = frontendId(frontend);
        if (frontend.kind === "clusterIP" && frontend.address !== undefined) clusterIPs.add(frontend.address);
        if (claims.ownerOf(id) === service.key) frontends.set(id, { service, port, frontend });
      }
    }
  }
  return { node, localCIDRs, frontends, clusterIPs, healthCheckPorts };
}
