import type { ChainNames, FixedChain, RenderOptions } from "./chains.ts";
import { type ChainId, chainId, comment, host, markBits, masquerade, rule } from "./rule.ts";

/** The rules of a chain that do not depend on the Services. They come before and after the Services' rules. */
export interface FixedRules {
  readonly head: readonly string[];
  readonly tail: readonly string[];
}

/** Renders all chains that do not depend on the Services. Pure. */
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
          // Without this rule, a late packet that conntrack does not recognize would leave with the pod's address, and
          // the client would reset the connection.
          ...(isConntrackLiberal ? [] : ["-m conntrack --ctstate INVALID -j DROP"]),
          rule(comment("kpng forwarding rules"), marked, "-j ACCEPT"),
          rule(comment("kpng forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
        ],
        tail: [],
      },
    ],
    ...(options.node.family === "v6" ? [] : [[filter("LOCALNET"), localnet] as const]),
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
          // The mark is cleared so that a packet that passes a second time, encapsulated by IPsec or VXLAN, is not
          // masqueraded again.
          `-j MARK --set-xmark 0x${masqueradeMark.toString(16)}/0x0`,
          rule(comment("kpng service traffic requiring SNAT"), masquerade),
        ],
        tail: [],
      },
    ],
  ]);
}

/**
 * The chain LOCALNET, which guards 127.0.0.1: node ports at that address need the sysctl route_localnet, which would
 * let neighbours reach programs that listen there (CVE-2020-8558). The chain always exists, so that the sysctl is never
 * set without it. Source: kube-proxy's and kubelet's KUBE-FIREWALL.
 */
const localnet: FixedRules = {
  head: [
    rule(
      "! -s 127.0.0.0/8 -d 127.0.0.0/8",
      comment("block incoming localnet connections"),
      "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    ),
  ],
  tail: [],
};

/**
 * Renders the jumps to NODEPORTS. They are the last rules of SERVICES, because a Service address may also be one of the
 * node's own addresses, and then takes precedence.
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

/**
 * Renders our jumps at the beginning of each built-in chain, in the order in which packets meet them. Source:
 * kube-proxy `iptables/proxier.go`, iptablesJumpChains. docs/design/iptables.md gives the reason for each.
 */
export function renderJumps({ names, node }: RenderOptions): ReadonlyMap<ChainId, readonly string[]> {
  const isNew = "-m conntrack --ctstate NEW";
  const firewall = jump(names, isNew, "kpng load balancer firewall", "PROXY-FIREWALL");
  const services = jump(names, isNew, "kpng service portals", "SERVICES");
  const external = jump(names, isNew, "kpng externally-visible service portals", "EXTERNAL-SERVICES");
  const portals = jump(names, "", "kpng service portals", "SERVICES");
  const guard = node.family === "v6" ? [] : [jump(names, "", "kpng localnet firewall", "LOCALNET")];
  return new Map([
    [
      chainId("filter", "INPUT"),
      [...guard, firewall, jump(names, "", "kpng health check service ports", "NODEPORTS"), external],
    ],
    [chainId("filter", "FORWARD"), [firewall, jump(names, "", "kpng forwarding rules", "FORWARD"), services, external]],
    [chainId("filter", "OUTPUT"), [...guard, firewall, services]],
    [chainId("nat", "PREROUTING"), [portals]],
    [chainId("nat", "OUTPUT"), [portals]],
    [chainId("nat", "POSTROUTING"), [jump(names, "", "kpng postrouting rules", "POSTROUTING")]],
  ]);
}

function jump(names: ChainNames, match: string, note: string, target: FixedChain): string {
  return rule(match, comment(note), `-j ${names.fixed(target)}`);
}
