/** A service proxy that scenarios are run with: kube-proxy in iptables mode, or one of our backends. */
export type ProxyName = "kube-proxy" | "iptables" | "nft" | "ipvs" | "userspace" | "ebpf";
