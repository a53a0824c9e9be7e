import { isIPv4, isIPv6 } from "node:net";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { Service } from "@kpng/model/service.ts";

/**
 * True if a service proxy serves the Service in this family. `planService` and `planHealthCheck` skip all other
 * Services, and `kpng explain` reports it. They share this file, because they must agree.
 *
 * Headless Services and ExternalNames are not served. A Service with cluster IPs of one family is served in that family
 * alone; a Service without cluster IPs, which only a state file can contain, in both.
 */
export function isServed({ isHeadless, type, clusterIPs }: Service, family: Family): boolean {
  if (isHeadless || type === "ExternalName") return false;
  const other = family === "v4" ? "v6" : "v4";
  return validAddresses(clusterIPs, family).length > 0 || (clusterIPs?.[other].length ?? 0) === 0;
}

/**
 * Returns the valid addresses of a family. An invalid one, e.g. of a state file, would make the kernel refuse all
 * rules.
 */
export function validAddresses(addresses: AddressSet | undefined, family: Family): readonly string[] {
  return (addresses?.[family] ?? []).filter((address) => isAddress(address, family));
}

/** True for an address of the family without a zone. The unspecified address is none: ipset refuses a whole update for it. */
export function isAddress(text: string, family: Family): boolean {
  if (text === "0.0.0.0" || text === "::") return false;
  return family === "v4" ? isIPv4(text) : isIPv6(text) && !text.includes("%");
}

/** True for 1 to 65535. */
export function isPortNumber(value: number): boolean {
  return Number.isInteger(value) && value >= 1 && value <= 65_535;
}
