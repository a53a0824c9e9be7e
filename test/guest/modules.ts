/** Kernel modules of a guest, loaded at its start. */
export const guestModules = [
  ...["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh", "ip_vs_mh", "dummy", "veth", "bridge"],
  ...["br_netfilter", "iptable_filter", "iptable_nat", "iptable_mangle"],
  ...["ip6table_filter", "ip6table_nat", "ip6table_mangle", "nf_conntrack_netlink"],
  ...["xt_set", "xt_conntrack", "xt_mark", "xt_comment", "xt_MASQUERADE", "xt_tcpudp", "ipt_REJECT", "ip6t_REJECT"],
  ...["ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet", "ip_set_hash_netnet"],
  "ip_set_bitmap_port",
  // For kube-proxy and kpng-iptables.
  ...["xt_ipvs", "xt_addrtype", "xt_physdev", "xt_statistic", "xt_recent", "xt_nat"],
] as const;
