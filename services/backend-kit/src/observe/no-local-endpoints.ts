import type { Family } from "@kpng/model/address.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import { isExternallyAccessible, type ServicePort } from "@kpng/model/service.ts";

/** Number of service ports whose traffic this node drops: their policy is Local and all endpoints are elsewhere. */
export interface NoLocalEndpoints {
  readonly internal: number;
  readonly external: number;
}

/**
 * Counts the service ports of one IP family whose traffic this node drops. `ProxyMetrics` calls it when metrics are
 * read. Separate from it, because this is a pure function of the view. Ports without any usable endpoint in the cluster
 * do not count: they are rejected, not dropped.
 *
 * *Source:* kube-proxy `iptables/proxier.go`, serviceNoLocalEndpointsTotal…
 *
 * Pure; O(services + endpoints of those with a policy Local).
 */
export function countNoLocalEndpoints(view: NodeView, family: Family): NoLocalEndpoints {
  let internal = 0;
  let external = 0;
  for (const service of view.services.values()) {
    const { internalTrafficPolicy, externalTrafficPolicy, clusterIPs, ports } = service.service;
    const isInternal = internalTrafficPolicy === "Local";
    const isExternal = externalTrafficPolicy === "Local" && isExternallyAccessible(service.service);
    if (!(isInternal || isExternal) || (clusterIPs?.[family].length ?? 0) === 0) continue;
    for (const [index, port] of ports.entries()) {
      if (!isUsableOnlyElsewhere(service, port, index, family)) continue;
      if (isInternal) internal++;
      if (isExternal) external++;
    }
  }
  return { internal, external };
}

function isUsableOnlyElsewhere(service: ServiceView, port: ServicePort, index: number, family: Family): boolean {
  const usable = service.endpoints.filter(
    ({ addresses, ports }) =>
      addresses[family].length > 0 && (ports.length === 0 || ports.some(({ name }) => name === port.name)),
  );
  if (usable.some(({ use }) => use.local)) return false;
  return service.portHasEndpoints?.[index]?.[family] ?? usable.some(({ use }) => use.cluster);
}
