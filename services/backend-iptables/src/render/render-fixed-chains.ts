import type { RenderOptions } from "./render-options.ts";
import { comment, host, markBits, masquerade, rule } from "./rule.ts";
import { type ChainId, chainId } from "./table.ts";

/** The rules of a chain that do not depend on the Services: before and after the rules of the Services. */
export interface FixedRules {
  readonly head: readonly string[];
  readonly tail: readonly string[];
}

/**
 * Renders all chains that do not depend on the Services. Pure.
 *
 * `IptablesRuleSet` and `diffFrame` call it and pass the result to `DesiredChains`, which adds the rules of Services
 * between `head` and `tail`. Separate from `renderService`, which renders the rules of one Service, and from
 * `renderJumps`, which renders the jumps from built-in chains.
 */
export function renderFixedChains(options: RenderOptions): ReadonlyMap<ChainId, FixedRules> {
  const { names, masqueradeMark, isConntrackLiberal } = options;
  const nat = (name: Parameters<typeof names.fixed>[0]): ChainId => chainId("nat", names.fixed(name));
  const filter = (name: Parameters<typeof names.fixed>[0]): ChainId => chainId("filter", names.fixed(name));
  const none: FixedRules = { head: [], tail: [] };
  const mark = markBits(masqueradeMark);
  const marked = `-m mark --mark ${mark}`;
  const unmarked = `-m mark ! --mark ${mark}`;
  return new Map<ChainId, FixedRules>([
    [filter("PROXY-FIREWALL"), none],
    [filter("NODEPORTS"), none],
    [filter("SERVICES"), none],
    [filter("EXTERNAL-SERVICES"), none],
    [
      filter("FORWARD"),
      {
        head: [
          // A late packet that conntrack does not know would leave with the pod's address, and the client would reset.
          ...(isConntrackLiberal
            ? []
            : [rule("-m conntrack --ctstate INVALID", counting(options.counters?.invalidDropped), "-j DROP")]),
          rule(comment("kpng forwarding rules"), marked, "-j ACCEPT"),
          rule(comment("kpng forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
        ],
        tail: [],
      },
    ],
    ...(options.localnetGuard === "none" ? [] : [[filter("LOCALNET"), localnet(options)] as const]),
    [nat("SERVICES"), { head: [], tail: nodePortJumps(options) }],
    [nat("NODEPORTS"), none],
    [nat("MARK-MASQ"), { head: [`-j MARK --set-xmark ${mark}`], tail: [] }],
    [nat("HAIRPIN"), none],
    [
      nat("POSTROUTING"),
      {
        head: [
          rule(unmarked, "-m conntrack --ctstate DNAT", `-j ${names.fixed("HAIRPIN")}`),
          rule(unmarked, "-j RETURN"),
          // Without the mark, a packet that passes a second time, wrapped by IPsec or VXLAN, is not masqueraded again.
          `-j MARK --set-xmark 0x${masqueradeMark.toString(16)}/0x0`,
          rule(comment("kpng service traffic requiring SNAT"), masquerade),
        ],
        tail: [],
      },
    ],
  ]);
}

/** Part of the comment of the guard's rule if kpng set route_localnet, so that a later cleanup resets it. */
export const localnetMarker = "kpng set route_localnet";

/**
 * Renders the chain LOCALNET, which guards 127.0.0.1. Node ports on 127.0.0.1 need the sysctl route_localnet, which
 * would let neighbours reach what listens there (CVE-2020-8558). Source: kube-proxy's and kubelet's KUBE-FIREWALL.
 */
function localnet({ masqueradeMark, counters, localnetGuard }: RenderOptions): FixedRules {
  const drop = rule(
    "! -s 127.0.0.0/8 -d 127.0.0.0/8",
    comment(`block incoming localnet connections${localnetGuard === "ours" ? `; ${localnetMarker}` : ""}`),
    "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
  );
  if (counters === undefined) return { head: [drop], tail: [] };
  // This rule only counts. Table nat has given the packet an endpoint and the mark, as it does with every packet from
  // localhost.
  const count = rule(
    "-s 127.0.0.0/8",
    comment("connections to node ports on localhost"),
    "-m conntrack --ctstate NEW -m conntrack --ctstate DNAT --ctorigdst 127.0.0.0/8",
    `-m mark --mark ${markBits(masqueradeMark)}`,
    counting(counters.localhostAccepted),
  );
  return { head: [drop, count], tail: [] };
}

/** Returns the match that counts the packets of a rule; "" without a counter. */
function counting(name: string | undefined): string {
  return name === undefined ? "" : `-m nfacct --nfacct-name ${name}`;
}

/**
 * Renders the jumps to NODEPORTS. They are the last rules of SERVICES: an address of a Service may be one of the node's
 * own, and then takes precedence.
 */
function nodePortJumps({ names, node }: RenderOptions): readonly string[] {
  const { family, nodePortAddresses, isLoopbackNodePorts } = node;
  const note = comment("kpng service nodeports; NOTE: this must be the last rule in this chain");
  const jump = `-j ${names.fixed("NODEPORTS")}`;
  if (nodePortAddresses === "all") {
    const notLoopback = isLoopbackNodePorts ? "" : `! -d ${family === "v4" ? "127.0.0.0/8" : "::1/128"}`;
    return [rule(notLoopback, note, "-m addrtype --dst-type LOCAL", jump)];
  }
  return nodePortAddresses.map((address) => rule(`-d ${host(family, address)}`, note, jump));
}
