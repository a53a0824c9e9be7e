import type { Family } from "@kpng/model/address.ts";

/**
 * Names of what kube-proxy has in the kernel. They are exact, because other programs use the prefix KUBE-, too: kubelet
 * has chains with it, and kube-router has chains and ipsets for network policies.
 *
 * *Source:* kube-proxy 1.36, `ipvs/cleanup.go`, `ipvs/ipset.go` and `iptables/cleanup.go`.
 */
const chains: ReadonlySet<string> = new Set(
  [
    // Of both modes.
    ...["SERVICES", "POSTROUTING", "MARK-MASQ", "FORWARD", "PROXY-FIREWALL"],
    ...["NODE-PORT", "LOAD-BALANCER", "SOURCE-RANGES-FIREWALL", "IPVS-FILTER", "IPVS-OUT-FILTER"],
    // Of iptables mode.
    ...["EXTERNAL-SERVICES", "NODEPORTS", "PROXY-CANARY"],
  ].map((name) => `KUBE-${name}`),
);

/** Ipsets of ipvs mode whose elements have the address and port of virtual servers. */
export const kubeProxyFrontendSets = [
  ...["CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "NODE-PORT-SCTP-HASH"],
] as const;

const otherSets = [
  ...["LOOP-BACK", "LOAD-BALANCER-LOCAL", "LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR"],
  ...["NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-LOCAL-SCTP-HASH"],
  ...["HEALTH-CHECK-NODE-PORT", "IPVS-IPS"],
] as const;

/** An ipset of kube-proxy. *Shape:* `CLUSTER-IP` for `KUBE-CLUSTER-IP`. */
type KubeProxySet = (typeof kubeProxyFrontendSets | typeof otherSets)[number];

/** All ipsets of ipvs mode. */
export const kubeProxySets: readonly KubeProxySet[] = [...kubeProxyFrontendSets, ...otherSets];

/** Returns the name of an ipset, of which kube-proxy cuts off what is longer than 31 characters. */
export function kubeProxySetName(family: Family, set: KubeProxySet): string {
  return `KUBE-${family === "v6" ? "6-" : ""}${set}`.slice(0, 31);
}

/** True for a chain of kube-proxy in ipvs or iptables mode. Chains of single Services end in a hash. */
export function isKubeProxyChain(chain: string): boolean {
  return chains.has(chain) || /^KUBE-(?:SVC|SVL|FW|EXT|SEP)-[A-Z0-9]{16}$/.test(chain);
}
