import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import {
  type NodePortAddresses,
  type NodePortAddressRule,
  resolveNodePortAddresses,
} from "@kpng/service-plan/node-port-addresses.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";

/** The addresses at which health checks are answered, per family. */
export type ListenAddresses = Readonly<Record<Family, NodePortAddresses>>;

/** Returns the addresses of this machine that node ports, health-check node ports included, answer at now. */
export function listenAddresses(rule: NodePortAddressRule, { node }: Pick<NodeView, "node">): ListenAddresses {
  const addresses = { local: readLocalAddresses(), ofNode: node?.addresses ?? [] };
  const ofFamily = (family: Family) => resolveNodePortAddresses(rule, family, addresses);
  return { v4: ofFamily("v4"), v6: ofFamily("v6") };
}
