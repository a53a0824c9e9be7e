/** An address family of Kubernetes. */
export type Family = "v4" | "v6";

/** Both families, in the order of tests. */
export const families: readonly Family[] = ["v4", "v6"];

/** Protocol of a packet; upper case in manifests. */
export type Protocol = "tcp" | "udp" | "sctp";

/** One address of each family. */
export type AddressPair = Readonly<Record<Family, string>>;

/** Name of a pod, which answers on every target port with its name. */
export type PodName = "a" | "b" | "c" | "d";

/** Name of a host that sends and answers packets. A node answers like a pod in the host network. */
export type HostName = PodName | "n1" | "n2";

/**
 * Network of all scenarios. The proxy under test runs on node n1, which has pods a and b; node n2 has pods c and d. The
 * only router of the client outside the cluster is n1. The laboratory builds this network, and the tracer assumes it.
 */
export const hosts: Readonly<Record<HostName, AddressPair>> = {
  a: { v4: "10.1.1.11", v6: "fd00:10:1:1::11" },
  b: { v4: "10.1.1.12", v6: "fd00:10:1:1::12" },
  c: { v4: "10.1.2.13", v6: "fd00:10:1:2::13" },
  d: { v4: "10.1.2.14", v6: "fd00:10:1:2::14" },
  n1: { v4: "192.0.2.1", v6: "2001:db8:1::1" },
  n2: { v4: "192.0.2.2", v6: "2001:db8:1::2" },
};

/** The node that each pod runs on. */
export const nodeOf: Readonly<Record<HostName, "n1" | "n2">> = {
  a: "n1",
  b: "n1",
  c: "n2",
  d: "n2",
  n1: "n1",
  n2: "n2",
};

/** Addresses of the nodes on the bridges of their pods, which are the default gateways of the pods. */
export const gateways: Readonly<Record<"n1" | "n2", AddressPair>> = {
  n1: { v4: "10.1.1.1", v6: "fd00:10:1:1::1" },
  n2: { v4: "10.1.2.1", v6: "fd00:10:1:2::1" },
};

/** Pod CIDRs of each node and of the cluster. */
export const podCIDRs: Readonly<Record<"n1" | "n2" | "cluster", AddressPair>> = {
  n1: { v4: "10.1.1.0/24", v6: "fd00:10:1:1::/64" },
  n2: { v4: "10.1.2.0/24", v6: "fd00:10:1:2::/64" },
  cluster: { v4: "10.1.0.0/16", v6: "fd00:10:1::/48" },
};

/** Default address of the client outside the cluster. */
export const outsideAddress: AddressPair = { v4: "192.0.2.20", v6: "2001:db8:1::20" };

/** Second address of the same client, which only source ranges for all clients contain. */
export const strangerAddress: AddressPair = { v4: "192.0.2.200", v6: "2001:db8:1::200" };

/**
 * More addresses of the client, to check that clients are spread. With two endpoints, all of them reach the same one by
 * accident once in eight million runs.
 */
export const crowdAddresses: readonly AddressPair[] = Array.from({ length: 24 }, (_, index) => ({
  v4: `192.0.2.${100 + index}`,
  v6: `2001:db8:1::${100 + index}`,
}));

/** Public address on the loopback device of n1, where MetalLB and others bind load-balancer IPs. */
export const boundAddress: AddressPair = { v4: "198.51.100.99", v6: "2001:db8:100::99" };

/** Another host on the nodes' network, which routes 127.0.0.0/8 to n1. */
export const neighbourAddress: AddressPair = { v4: "192.0.2.30", v6: "2001:db8:1::30" };

/** Ranges of client addresses. */
export const ranges = {
  /** Contains the client's default address, but neither its second one nor a node. */
  outside: { v4: "192.0.2.16/28", v6: "2001:db8:1::20/124" },
  /** Contains only the nodes. */
  nodes: { v4: "192.0.2.0/29", v6: "2001:db8:1::/125" },
  /** Contains every address of the family. */
  everybody: { v4: "0.0.0.0/0", v6: "::/0" },
  /** Contains n1's external network, but not its bridge. */
  lan: { v4: "192.0.2.0/24", v6: "2001:db8:1::/64" },
} as const satisfies Readonly<Record<string, AddressPair>>;

/** Bridge of a node's pods. */
export const bridgeName = "cbr0";
