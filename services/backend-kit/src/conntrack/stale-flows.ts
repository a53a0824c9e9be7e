import type { UdpFlow } from "./udp-flow.ts";
import { type FrontendKey, ipFrontend, nodePortFrontend, type Servers } from "./udp-frontends.ts";

export interface Frontends {
  /** Of the view in force. */
  readonly present: ReadonlyMap<FrontendKey, Servers>;
  /** That were in force before, and whose flows have not been looked at since. */
  readonly gone: ReadonlySet<FrontendKey>;
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
}

/**
 * True if a flow goes where the rules would not send it today.
 *
 * | frontend | flow | stale |
 * |---|---|---|
 * | present, with endpoints | to one of them | no |
 * | present, with endpoints | to another, or not translated (begun before the rules) | yes |
 * | present without endpoints, or gone | translated | yes |
 * | present without endpoints, or gone | not translated | no: a new one would be the same |
 * | none | any | no |
 *
 * Pure.
 */
export function isStale(flow: UdpFlow, frontends: Frontends): boolean {
  const { destination, destinationPort, family } = flow;
  const keys = [ipFrontend(destination, destinationPort)];
  const nodePort = nodePortFrontend(family, destinationPort);
  if ((frontends.present.has(nodePort) || frontends.gone.has(nodePort)) && frontends.isNodePortAddress(destination)) {
    keys.push(nodePort);
  }
  // An address of the node may be an external IP too: whoever serves under either name is a good answer.
  const known = keys.filter((key) => frontends.present.has(key) || frontends.gone.has(key));
  if (known.length === 0) return false;
  const servers = known.map((key) => frontends.present.get(key)).filter((set) => set !== undefined);
  const { replySource, replySourcePort } = flow;
  if (servers.some((set) => set.has(`${replySource} ${replySourcePort}`) || set.has(`${replySource} *`))) return false;
  const isTranslated = replySource !== destination || replySourcePort !== destinationPort;
  return isTranslated || servers.some((set) => set.size > 0);
}

/**
 * Adds stale flows up to groups that one filter of the tool deletes: all clients of one frontend that go to one dead
 * endpoint. A thousand clients of a DNS server that is gone are one deletion.
 */
export class StaleGroups {
  readonly #groups = new Map<string, UdpFlow>();

  add(flow: UdpFlow): void {
    const { destination, destinationPort, replySource, replySourcePort } = flow;
    this.#groups.set(`${destination} ${destinationPort} ${replySource} ${replySourcePort}`, flow);
  }

  get groups(): readonly UdpFlow[] {
    return [...this.#groups.values()];
  }
}
