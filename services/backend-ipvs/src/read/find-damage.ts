import { parseServer } from "../render/kernel-objects.ts";
import type { ObjectNames } from "../render/object-names.ts";
import type { ReadObjects } from "./read-objects.ts";

/**
 * Returns a sign that packets to Services get lost: our interface is missing or down, an ipset records an address or a
 * virtual server that does not exist, or no ipset has an address of the interface. Undefined if there is no such sign.
 * Pure.
 *
 * `IpvsRuleSet` calls it while it keeps the objects of an earlier run, before the first complete view. Separate from
 * `diffObjects`, which finds all damage, e.g. a missing real server, but only by comparison with the view.
 */
export function findDamage({ objects, isInterfaceUp }: ReadObjects, names: ObjectNames): string | undefined {
  const recorded = (role: "ADDRESSES" | "SERVERS" | "MARKS") => [...(objects.get(role)?.keys() ?? [])];
  if (!isInterfaceUp && recorded("ADDRESSES").length > 0) return `interface ${names.interfaceName} is missing or down`;
  const address = recorded("ADDRESSES").find((one) => objects.get("address")?.has(one) !== true);
  if (address !== undefined) return `interface ${names.interfaceName} lacks the address ${address}`;
  const ofSets = objects.get("ADDRESSES");
  const unrecorded = [...(objects.get("address")?.keys() ?? [])].find((one) => ofSets?.has(one) !== true);
  if (unrecorded !== undefined) return `no ipset has the address ${unrecorded} of interface ${names.interfaceName}`;
  const servers = new Set([...(objects.get("server")?.keys() ?? [])].map((server) => parseServer(server)?.element));
  const server = [...recorded("SERVERS"), ...recorded("MARKS")].find((one) => !servers.has(one));
  return server === undefined ? undefined : `there is no virtual server ${server}`;
}
