import type { EntryNode } from "./entry.ts";

/**
 * Returns the addresses at which node ports answer; loopback addresses never do. `isOwn` recognizes the addresses of
 * Services that this process has added to an interface, which are local but not the node's. Pure. `AddressEntry` and
 * `RedirectEntry` share it, hence a file of its own.
 */
export function nodePortPlaces({ plan, localAddresses }: EntryNode, isOwn: (address: string) => boolean): string[] {
  const isServed = (address: string): boolean =>
    !(isOwn(address) || address.startsWith("fe80:") || address.startsWith("127.") || address === "::1");
  const chosen = plan.nodePortAddresses === "all" ? localAddresses : plan.nodePortAddresses;
  return chosen.filter(isServed);
}
