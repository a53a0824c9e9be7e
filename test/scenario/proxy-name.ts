/**
 * A service proxy that scenarios are run with: kube-proxy in iptables mode ("kube-proxy"), nftables mode
 * ("kube-proxy-nft"), or one of our backends. kpng-ebpf serves the sockets of the node ("ebpf"), or also those of pods.
 */
export type ProxyName =
  | "kube-proxy"
  | "kube-proxy-nft"
  | "iptables"
  | "nft"
  | "ipvs"
  | "userspace"
  | "ebpf"
  | "ebpf-all";

/** kube-proxy, by its mode. */
export type KubeProxyName = Extract<ProxyName, `kube-proxy${string}`>;

/** Variants of a proxy: what is recorded for the other proxy holds for them, too. */
const variantOf: Readonly<Partial<Record<ProxyName, ProxyName>>> = {
  "kube-proxy-nft": "nft",
  // It has the same rules for packets.
  ebpf: "nft",
  "ebpf-all": "ebpf",
};

/**
 * Returns what is recorded for a proxy. kube-proxy in nftables mode is the oracle for "nft": what is recorded for our
 * backend holds for it, too, unless it has a record of its own.
 */
export function recordOf<Value>(
  records: Readonly<Partial<Record<ProxyName, Value>>> | undefined,
  proxy: ProxyName,
): Value | undefined {
  const variant = variantOf[proxy];
  return records?.[proxy] ?? (variant === undefined ? undefined : recordOf(records, variant));
}

/** Returns the proxy that has the rules of kpng-ebpf, which serve what its sockets leave; otherwise the proxy itself. */
export function rulesOf(proxy: ProxyName): ProxyName {
  return proxy === "ebpf" || proxy === "ebpf-all" ? "nft" : proxy;
}

/**
 * Proxies that carry the traffic: endpoints see connections of the node, whatever source address a scenario records.
 */
export const carryingProxies: ReadonlySet<ProxyName> = new Set(["userspace"]);

/**
 * Proxies that serve the sockets of pods: a pod's socket connects to the endpoint itself, from the pod's address,
 * where rules would masquerade its packets. Nothing needs masquerade there, because answers come back by the same way.
 */
export const socketProxies: ReadonlySet<ProxyName> = new Set(["ebpf-all"]);
