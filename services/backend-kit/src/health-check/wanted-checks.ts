import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/** One health check that this node must answer: of a Service, in one family. */
export interface WantedCheck {
  readonly service: ServiceKey;
  readonly namespace: string;
  readonly name: string;
  readonly family: Family;
  /** 1 to 65535. */
  readonly port: number;
  /** Distinct addresses of ready endpoints on this node. */
  readonly localEndpoints: number;
}

/**
 * Returns the health checks of a view: of load balancers with external policy Local, in each family in which they have a
 * cluster IP, each family with its own count, as kube-proxy has them.
 *
 * Endpoints that only terminate do not count although traffic may still reach them: that is how a node drains.
 *
 * *Source:* kube-proxy `endpointschangetracker.go`, LocalReadyEndpoints; `serviceport.go`, HealthCheckNodePort.
 *
 * Pure; O(services + endpoints of those with a health check).
 */
export function wantedChecks(view: NodeView): readonly WantedCheck[] {
  const checks: WantedCheck[] = [];
  for (const [key, service] of view.services) {
    if (!needsHealthCheck(service)) continue;
    const { namespace, name, clusterIPs, healthCheckNodePort: port } = service.service;
    for (const family of families) {
      if ((clusterIPs?.[family].length ?? 0) === 0) continue;
      const localEndpoints = countLocalReady(service, family);
      checks.push({ service: key, namespace, name, family, port, localEndpoints });
    }
  }
  return checks;
}

function needsHealthCheck({ service }: ServiceView): boolean {
  return (
    service.healthCheckNodePort !== 0 && service.type === "LoadBalancer" && service.externalTrafficPolicy === "Local"
  );
}

function countLocalReady({ endpoints }: ServiceView, family: Family): number {
  const local = endpoints.filter(({ isOnNode, conditions }) => isOnNode && conditions.ready);
  return new Set(local.flatMap(({ addresses }) => addresses[family].slice(0, 1))).size;
}
