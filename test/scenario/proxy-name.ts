/**
 * A service proxy that scenarios are run with: kube-proxy in iptables mode ("kube-proxy") or nftables mode
 * ("kube-proxy-nft"), or one of our backends.
 */
export type ProxyName = "kube-proxy" | "kube-proxy-nft" | "iptables" | "nft" | "ipvs" | "userspace" | "ebpf";

/**
 * Returns what is recorded for a proxy. kube-proxy in nftables mode is the oracle for "nft": what is recorded for "nft"
 * holds for it, too, unless it has a record of its own.
 */
export function recordOf<Value>(
  records: Readonly<Partial<Record<ProxyName, Value>>> | undefined,
  proxy: ProxyName,
): Value | undefined {
  return records?.[proxy] ?? (proxy === "kube-proxy-nft" ? records?.nft : undefined);
}
