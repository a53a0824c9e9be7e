import { networkInterfaces } from "node:os";
import { type AddressSet, toAddressSet } from "@kpng/model/address.ts";

/**
 * Reads the addresses of this machine's interfaces, loopback and link-local ones among them, without zones.
 *
 * Only of interfaces that are up: no packet reaches the others.
 */
export function readLocalAddresses(): AddressSet {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return toAddressSet(all.map(({ address }) => address.replace(/%.*$/, ""))).set;
}
