import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import {
  type NodePortAddresses,
  type NodePortAddressRule,
  resolveNodePortAddresses,
} from "@kpng/service-plan/node-port-addresses.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";

/** Addresses at which health checks are answered, per IP family. */
export type ListenAddresses = Readonly<Record<Family, NodePortAddresses>>;

/**
 * Returns the current addresses of this machine at which node ports answer: health-check node ports follow the same
 * rule (`--nodeport-addresses`) as node ports. `AfterCommit` and the backend `healthchecks` pass the function to
 * `HealthCheckServers`. Separate from the servers, which know neither the rule nor the machine's interfaces.
 *
 * `local` are the node's own addresses; default: those of all interfaces.
 */
export function listenAddresses(
  rule: NodePortAddressRule,
  { node }: Pick<NodeView, "node">,
  local: AddressSet = readLocalAddresses(),
): ListenAddresses {
  const addresses = { local, ofNode: node?.addresses };
  const ofFamily = (family: Family) => resolveNodePortAddresses(rule, family, addresses);
  return { v4: ofFamily("v4"), v6: ofFamily("v6") };
}
