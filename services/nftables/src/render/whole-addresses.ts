import type { Family } from "@kpng/model/address.ts";
import { numberBytes } from "@kpng/model/byte-text.ts";
import type {
  AllowedSources,
  EndpointSetName,
  NodePlan,
  Route,
  WholeAddressPlan,
  WholeFrontend,
} from "@kpng/service-plan/service-plan.ts";
import { firstEndpointId } from "../layout/elements.ts";
import { formatNumber } from "../layout/format-element.ts";
import { clientMap, hash, type ServiceChain } from "./service-chains.ts";
import { frontendKey, ipOf, podMatch } from "./skeleton.ts";

/**
 * The rules of whole addresses: every protocol and port of an address that no frontend of a port takes.
 *
 * Few Services ask for whole addresses, so they have chains of their own beside the skeleton, and a table without such
 * Services is as if this file did not exist. The example is default/all at 198.51.100.10 with two endpoints:
 *
 * ```text
 * packet ─► nat_prerouting (-100): frontends of ports     the more specific frontend comes first
 *        ─► whole_prerouting (-99), only if no NAT so far
 *             whole_addresses: not @refused, not @dropped, not the node's own address
 *               198.51.100.10 ─► whole_ext_H: jump mark_masquerade
 *                                 ─► whole_cluster_H: dnat to numgen random mod 2 map { 0 : 10.1.0.7, 1 : 10.1.0.8 }
 *        ─► whole_forward (-109): whole_check rejects addresses of Services without endpoints
 * ```
 *
 * The kernel runs a further nat chain only for a first packet that the chains before it have not translated
 * (`nf_nat_inet_fn`), and none for ICMP errors about a connection, which it translates like the connection. The maps are
 * anonymous: they change with their rule, so a packet never meets half a change.
 */

/** Chains of one Service, and where its addresses lead. */
export interface WholeAddressRules {
  readonly chains: readonly ServiceChain[];
  /** The chain of each address. */
  readonly entries: ReadonlyMap<string, string>;
  /** Addresses whose packets are rejected. */
  readonly refused: readonly string[];
}

/** Renders the chains of one Service. `rangesChain` returns the chain that drops packets from all other sources. */
export function renderWholeAddresses(
  node: Pick<NodePlan, "family" | "podTraffic">,
  whole: WholeAddressPlan,
  maxClients: number,
  rangesChain: (sources: AllowedSources) => string,
): WholeAddressRules {
  const id = hash(`${whole.name} whole`);
  const pick = (set: EndpointSetName): string => `whole_${set}_${id}`;
  const chains = new Map<string, ServiceChain>();
  const entries = new Map<string, string>();
  const refused: string[] = [];
  for (const frontend of whole.frontends) {
    const { kind, address, routes, sources } = frontend;
    const routed = `whole_${kind === "clusterIP" ? "int" : "ext"}_${id}`;
    chains.set(routed, { name: routed, rules: routeRules(node, routes, pick) });
    entries.set(address, routed);
    if (routes.outside.kind === "refuse") refused.push(address);
    if (sources === undefined) continue;
    const ranges = rangesChain(sources);
    const filtered = `whole_${ranges}_${id}`;
    chains.set(filtered, { name: filtered, rules: [`jump ${ranges}`, `goto ${routed}`] });
    entries.set(address, filtered);
  }
  const used = new Set(whole.frontends.flatMap(setsOf));
  const picks = [...used].map((set) => renderPick(node.family, whole, set, pick(set), maxClients));
  return { chains: [...picks, ...chains.values()], entries, refused };
}

function setsOf({ routes }: WholeFrontend): readonly EndpointSetName[] {
  return Object.values(routes).flatMap((route) => (route.kind === "balance" ? [route.set] : []));
}

/** Renders what happens to the packets of each sender, as `balanceChains` in the skeleton does. */
function routeRules(
  node: Pick<NodePlan, "podTraffic" | "family">,
  { pod, node: own, outside }: WholeFrontend["routes"],
  pick: (set: EndpointSetName) => string,
): readonly string[] {
  const rulesOf = (route: Route, match: string): readonly string[] => {
    const only = match === "" ? "" : `${match} `;
    switch (route.kind) {
      case "refuse":
        return [`${only}return`];
      case "drop":
        return [`${only}drop`];
      case "balance":
        return [...(route.isMasqueraded ? [`${only}jump mark_masquerade`] : []), `${only}goto ${pick(route.set)}`];
    }
  };
  const isPod = podMatch(node)?.is;
  const last = rulesOf(outside, "");
  const isSame = (route: Route): boolean => rulesOf(route, "").join() === last.join();
  const ofNode = isSame(own) ? [] : rulesOf(own, "fib saddr type local");
  const ofPods = isPod === undefined || (isSame(pod) && ofNode.length === 0) ? [] : rulesOf(pod, isPod);
  return [...ofPods, ...ofNode, ...last];
}

/** Renders the chain that sends a packet to an endpoint of a set, at the same port. */
function renderPick(
  family: Family,
  { sets, affinitySeconds }: WholeAddressPlan,
  set: EndpointSetName,
  name: string,
  maxClients: number,
): ServiceChain {
  const endpoints = sets[set].map(({ address }) => address);
  const random = `numgen random mod ${endpoints.length}`;
  const mapOf = (entries: Iterable<readonly [key: unknown, value: string]>): string =>
    `{ ${Array.from(entries, (pair) => pair.join(" : ")).join(", ")} }`;
  if (affinitySeconds === undefined) {
    return { name, rules: [`dnat to ${random} map ${mapOf(endpoints.entries())}`] };
  }
  const ids = endpointIds(name, endpoints);
  const clients = clientMap(family, hash(name), affinitySeconds, maxClients);
  const goThere = `dnat to meta priority map ${mapOf(ids.map((id, at) => [id, endpoints[at] ?? ""]))}`;
  return {
    name,
    sets: [clients.set],
    rules: [
      "meta priority set 0",
      clients.recall,
      // Has no effect unless the client is known and its endpoint still there.
      goThere,
      `meta priority set ${random} map ${mapOf(ids.entries())}`,
      ...clients.remember(goThere),
    ],
  };
}

/**
 * Returns a number for each endpoint, as nft writes priorities. It is derived from the endpoint, so that clients keep
 * theirs when others come or go, and after a restart.
 */
function endpointIds(set: string, endpoints: readonly string[]): readonly string[] {
  const taken = new Set<number>();
  return endpoints.map((endpoint) => {
    let id = Number.parseInt(hash(`${set} ${endpoint}`).slice(0, 8), 16) % firstEndpointId;
    while (taken.has(id)) id = (id + 1) % firstEndpointId;
    taken.add(id);
    return formatNumber(numberBytes(firstEndpointId + id));
  });
}

/**
 * Renders the chains that all Services with whole addresses share: the base chains, and the chains that find a packet's
 * address. Without Services there are none.
 */
export function renderWholeAddressEntry(
  family: Family,
  services: Iterable<WholeAddressRules>,
): readonly ServiceChain[] {
  const ip = ipOf(family);
  const all = [...services];
  const entries = all.flatMap(({ entries }) => [...entries]).sort();
  const refused = all.flatMap((each) => each.refused).sort();
  if (entries.length === 0) return [];
  const key = frontendKey(ip);
  const notOwn = "fib daddr type local return";
  const base = (name: string, hook: string, rule: string): ServiceChain => ({ name, hook, rules: [rule] });
  return [
    {
      name: "whole_addresses",
      rules: [
        `${key} @refused return`,
        `${key} @dropped return`,
        notOwn,
        `${ip} daddr vmap { ${entries.map(([address, chain]) => `${address} : goto ${chain}`).join(", ")} }`,
      ],
    },
    {
      name: "whole_check",
      rules: refused.length === 0 ? [] : [notOwn, `${ip} daddr { ${refused.join(", ")} } reject`],
    },
    base("whole_prerouting", "type nat hook prerouting priority -99", "jump whole_addresses"),
    base("whole_output", "type nat hook output priority -99", "jump whole_addresses"),
    base("whole_forward", "type filter hook forward priority -109", "ct state new jump whole_check"),
    base("whole_filter_output", "type filter hook output priority -89", "ct state new jump whole_check"),
  ];
}
