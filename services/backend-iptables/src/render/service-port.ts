import { type Family, parseAddress, parseCidr } from "@kpng/model/address.ts";
import type { ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Protocol, Service, ServicePort } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { addressAndPort } from "./rule.ts";

/** One service port in one family, reduced to what its rules depend on. */
export interface ServicePortFacts {
  /** *Shape:* `namespace/name:port`, or `namespace/name` for the unnamed port. Source: kube-proxy ServicePortName. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** 0 for none. */
  readonly nodePort: number;
  readonly clusterIPs: readonly string[];
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly LoadBalancerIP[];
  readonly isInternalLocal: boolean;
  readonly isExternalLocal: boolean;
  /** Undefined for no affinity. */
  readonly affinitySeconds?: number | undefined;
  /** `address:port`, ascending as text; no two are equal. */
  readonly clusterEndpoints: readonly string[];
  readonly localEndpoints: readonly string[];
  /** A usable endpoint exists somewhere in the cluster. */
  readonly hasEndpoints: boolean;
}

export interface LoadBalancerIP {
  readonly address: string;
  /** Undefined for everyone. */
  readonly sourceRanges?: readonly string[] | undefined;
}

/** Returns the facts of all ports of a Service that a proxy serves; none for a headless Service or an ExternalName. */
export function servicePorts(view: ServiceView, family: Family): ServicePortFacts[] {
  const { service } = view;
  if (service.isHeadless || service.type === "ExternalName") return [];
  const clusterIPs = valid(family, service.clusterIPs?.[family]);
  // A Service of one family is served in that one alone; one without cluster IPs, which only a state file has, in both.
  const other = family === "v4" ? "v6" : "v4";
  if (clusterIPs.length === 0 && (service.clusterIPs?.[other].length ?? 0) > 0) return [];
  const externalIPs = valid(family, service.externalIPs?.[family]);
  const loadBalancerIPs = valid(family, service.loadBalancerIPs?.[family]).map(
    (address): LoadBalancerIP => ({ address, sourceRanges: sourceRangesOf(service, family, address) }),
  );
  return service.ports.filter(isValidPort).map((port) => {
    const at = service.ports.indexOf(port);
    const isExternallyAccessible = port.nodePort !== 0 || externalIPs.length + loadBalancerIPs.length > 0;
    const cluster = endpointsOf(view.endpoints, (use) => use.cluster, port, family);
    const local = endpointsOf(view.endpoints, (use) => use.local, port, family);
    return {
      name: `${service.namespace}/${service.name}${port.name === "" ? "" : `:${port.name}`}`,
      protocol: port.protocol,
      port: port.port,
      nodePort: port.nodePort,
      clusterIPs,
      externalIPs,
      loadBalancerIPs,
      isInternalLocal: service.internalTrafficPolicy === "Local",
      isExternalLocal: service.externalTrafficPolicy === "Local" && isExternallyAccessible,
      affinitySeconds: service.clientIPAffinitySeconds,
      clusterEndpoints: cluster,
      localEndpoints: local,
      hasEndpoints: cluster.length + local.length > 0 || view.portHasEndpoints?.[at]?.[family] === true,
    };
  });
}

/** One address that is none would make the kernel refuse the rules of all Services. */
function valid(family: Family, addresses: readonly string[] = []): readonly string[] {
  return addresses.filter((address) => parseAddress(address)?.family === family);
}

function isValidPort(port: ServicePort): boolean {
  return isPortNumber(port.port) && (port.nodePort === 0 || isPortNumber(port.nodePort));
}

function isPortNumber(value: number): boolean {
  return Number.isInteger(value) && value >= 1 && value <= 65_535;
}

/**
 * Who may use a load-balancer IP. A range that holds every address stands for all, whatever else is in the list.
 *
 * Source: kube-proxy `serviceport.go`, newBaseServiceInfo.
 */
function sourceRangesOf(service: Service, family: Family, address: string): readonly string[] | undefined {
  const ranges = service.ipFilters
    .filter(({ targetIPs }) => targetIPs === undefined || targetIPs[family].includes(address))
    .flatMap(({ sourceRanges }) => sourceRanges)
    .map((range) => parseCidr(range.trim()))
    .filter((range) => range !== undefined && range.family === family)
    .map((range) => range?.cidr ?? "");
  if (ranges.length === 0 || ranges.some((range) => range.endsWith("/0"))) return undefined;
  return [...new Set(ranges)];
}

function endpointsOf(
  endpoints: readonly ViewEndpoint[],
  isUsed: (use: ViewEndpoint["use"]) => boolean,
  port: ServicePort,
  family: Family,
): readonly string[] {
  const found = new Set<string>();
  for (const endpoint of endpoints) {
    const address = endpoint.addresses[family][0];
    if (address === undefined || !isUsed(endpoint.use) || parseAddress(address)?.family !== family) continue;
    for (const { name, port: target, protocol } of endpoint.ports) {
      if (name !== port.name || (protocol !== undefined && protocol !== port.protocol)) continue;
      if (isPortNumber(target)) found.add(addressAndPort(family, address, target));
    }
  }
  return [...found].sort(compareText);
}
