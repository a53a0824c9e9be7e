import type { Family } from "@kpng/model/address.ts";
import type { ViewNode } from "@kpng/model/node-view.ts";
import { type NodeAddresses, resolveNodePortAddresses } from "@kpng/service-plan/node-port-addresses.ts";
import type { CounterNames, LocalnetGuard, RenderOptions } from "./render-options.ts";
import { localTraffic, nodeAddress, type Settings } from "./settings.ts";

/** What rules depend on besides the Services and what an administrator says. */
export interface RenderFacts {
  /** The Node as the view has it; undefined if it has none. */
  readonly node: ViewNode | undefined;
  /** Addresses of this node's interfaces. */
  readonly localAddresses: NodeAddresses["local"];
  /** See {@link RenderOptions.isConntrackLiberal}. */
  readonly isConntrackLiberal: boolean;
  readonly counters?: CounterNames | undefined;
  /** Of IPv4. Default "others" with node ports on localhost, else "none". */
  readonly localnetGuard?: LocalnetGuard | undefined;
}

/** Returns what rules of one family are made with. Pure. */
export function makeRenderOptions(settings: Settings, family: Family, facts: RenderFacts): RenderOptions {
  const { node, localAddresses, isConntrackLiberal, counters } = facts;
  const isLocalhostNodePorts = family === "v4" && settings.isLocalhostNodePorts;
  const addresses = { local: localAddresses, ofNode: node?.addresses ?? [] };
  const chosen = resolveNodePortAddresses(settings.nodePortAddresses, family, addresses);
  const isServed = (address: string): boolean =>
    address.startsWith("127.") ? isLocalhostNodePorts : address !== "::1" && !address.startsWith("fe80:");
  return {
    family,
    names: settings.names,
    masqueradeMark: 2 ** settings.masqueradeBit,
    isMasqueradeAll: settings.isMasqueradeAll,
    localTraffic: localTraffic(settings, node, family),
    nodePortAddresses: chosen.kind === "all" ? "all" : chosen.addresses.filter(isServed).toSorted(),
    isLocalhostNodePorts,
    localnetGuard: family === "v6" ? "none" : (facts.localnetGuard ?? (isLocalhostNodePorts ? "others" : "none")),
    isConntrackLiberal,
    nodeAddress: nodeAddress(node, family),
    counters,
  };
}
