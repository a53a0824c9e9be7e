import type { UdpFlow } from "./udp-flow.ts";
import { type FrontendKey, ipFrontend, nodePortFrontend, type Servers, type UdpListeners } from "./udp-frontends.ts";

/** UDP frontends (addresses and ports at which Services answer) against which flows are checked. */
export interface Frontends {
  /** Frontends of the current view, with the endpoints that may serve each. */
  readonly present: ReadonlyMap<FrontendKey, Servers>;
  /** Previous frontends whose flows have not been examined since they were removed. */
  readonly gone: ReadonlySet<FrontendKey>;
  /** Default none. */
  readonly listeners?: UdpListeners | undefined;
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
}

/**
 * Returns true if the current rules would not send a new flow of this client to the same place. `StaleFlowCleaner` asks
 * this for each entry of the conntrack table.
 *
 * | frontend | flow | stale |
 * |---|---|---|
 * | present, with endpoints | to one of them | no |
 * | present, with endpoints | to another, or not translated (started before the rules) | yes |
 * | present without endpoints, or gone | translated | yes |
 * | present without endpoints, or gone | not translated | no: a new flow would be the same |
 * | none | translated, to a local listener, which serves another frontend now | yes |
 * | none | any other | no |
 */
export function isStale(flow: UdpFlow, { listeners, ...frontends }: Frontends): boolean {
  const { destination, destinationPort, family, replySource, replySourcePort } = flow;
  const keys = [ipFrontend(destination, destinationPort)];
  const nodePort = nodePortFrontend(family, destinationPort);
  if ((frontends.present.has(nodePort) || frontends.gone.has(nodePort)) && frontends.isNodePortAddress(destination)) {
    keys.push(nodePort);
  }
  // An address of the node may also be an external IP: an endpoint of either frontend is right.
  const known = keys.filter((key) => frontends.present.has(key) || frontends.gone.has(key));
  const isTranslated = replySource !== destination || replySourcePort !== destinationPort;
  if (known.length === 0) return isTranslated && listeners?.has(`${replySource} ${replySourcePort}`) === true;
  const servers = known.map((key) => frontends.present.get(key)).filter((set) => set !== undefined);
  if (servers.some((set) => set.has(`${replySource} ${replySourcePort}`) || set.has(`${replySource} *`))) return false;
  return isTranslated || servers.some((set) => set.size > 0);
}

/**
 * Groups stale flows so that one filter of the conntrack program deletes a group: all clients of one frontend that use
 * one dead endpoint. A thousand clients of a deleted DNS server are one deletion. `StaleFlowCleaner` adds each stale
 * flow, and passes the groups to `ConntrackTool`.
 */
export class StaleGroups {
  readonly #groups = new Map<string, UdpFlow>();

  add(flow: UdpFlow): void {
    const { destination, destinationPort, replySource, replySourcePort } = flow;
    this.#groups.set(`${destination} ${destinationPort} ${replySource} ${replySourcePort}`, flow);
  }

  /** One flow of each group. */
  get groups(): readonly UdpFlow[] {
    return [...this.#groups.values()];
  }
}
