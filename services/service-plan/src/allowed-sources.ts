import { type Family, parseCidr } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { Service } from "@kpng/model/service.ts";
import type { AllowedSources, NodePlan } from "./service-plan.ts";

/**
 * Returns the clients that each load-balancer IP lets through; an address without an entry lets all clients through.
 * `planService` puts them into the plan; Kubernetes calls these CIDRs the source ranges of a Service. Separate from it,
 * because source ranges depend neither on ports nor on endpoints.
 */
export function makeAllowedSources(
  service: Service,
  loadBalancerIPs: readonly string[],
  { family, nodeAddress }: NodePlan,
): ReadonlyMap<string, AllowedSources> {
  if (service.ipFilters.length === 0) return new Map();
  const addressesByRanges = Map.groupBy(loadBalancerIPs, (address) => sourceRanges(service, family, address).join(" "));
  const allowed = new Map<string, AllowedSources>();
  for (const [text, addresses] of addressesByRanges) {
    if (text === "") continue;
    const ranges = text.split(" ");
    const isNodeAllowed = nodeAddress !== undefined && ranges.some((range) => isIn(nodeAddress, range));
    const sources = { ranges, ownAddresses: isNodeAllowed ? addresses : [] };
    for (const address of addresses) allowed.set(address, sources);
  }
  return allowed;
}

/**
 * Returns the ranges for one address; an empty list if all clients are let through. That is the case if no range has
 * the family, or if one of the ranges contains every address. Kubernetes has one list for all addresses of a Service; a
 * state file may have one for each.
 *
 * Source: kube-proxy `serviceport.go`, newBaseServiceInfo.
 */
function sourceRanges({ ipFilters }: Service, family: Family, address: string): readonly string[] {
  const ranges = ipFilters
    .filter(({ targetIPs }) => targetIPs === undefined || targetIPs[family].includes(address))
    .flatMap((filter) => filter.sourceRanges)
    .map((range) => parseCidr(range.trim()))
    .flatMap((range) => (range?.family === family ? [range.cidr] : []));
  return ranges.some((range) => range.endsWith("/0")) ? [] : [...new Set(ranges)];
}
