import { existsSync } from "node:fs";
import { type Family, families } from "@kpng/model/address.ts";

/**
 * Returns the families that the kernel has, IPv4 first: IPv6 may be disabled. The backends nft, ipvs and userspace open
 * a rule set for each. A file of its own, because the three must not import each other.
 */
export function nodeFamilies(): readonly Family[] {
  return families.filter((family) => family === "v4" || existsSync("/proc/net/if_inet6"));
}
