/** An address family of Kubernetes. */
export type Family = "v4" | "v6";

/** Both, in the order in which tests name them. */
export const families: readonly Family[] = ["v4", "v6"];

/** A protocol that packets are sent with; upper case in manifests. */
export type Protocol = "tcp" | "udp" | "sctp";

/** One address of each family. */
export type AddressPair = Readonly<Record<Family, string>>;

/** A pod that answers on every target port with its name. */
export type PodName = "a" | "b" | "c" | "d";

/** Something that has addresses and sends or answers. A node answers as a pod in the host's network does. */
export type HostName = PodName | "n1" | "n2";

/**
 * The world that scenarios speak of: node n1, which the proxy under test runs on, with pods a and b; node n2 with pods
 * c and d; one client outside the cluster, for which n1 is the router. The laboratory builds it, the tracer assumes it.
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

/** The node's address on the bridge of its pods, their default gateway. */
export const gateways: Readonly<Record<"n1" | "n2", AddressPair>> = {
  n1: { v4: "10.1.1.1", v6: "fd00:10:1:1::1" },
  n2: { v4: "10.1.2.1", v6: "fd00:10:1:2::1" },
};

/** Pod addresses of each node, and of the cluster. */
export const podCIDRs: Readonly<Record<"n1" | "n2" | "cluster", AddressPair>> = {
  n1: { v4: "10.1.1.0/24", v6: "fd00:10:1:1::/64" },
  n2: { v4: "10.1.2.0/24", v6: "fd00:10:1:2::/64" },
  cluster: { v4: "10.1.0.0/16", v6: "fd00:10:1::/48" },
};

/** The client outside the cluster, as it calls by default. */
export const outsideAddress: AddressPair = { v4: "192.0.2.20", v6: "2001:db8:1::20" };

/** A second address of the same client, outside every source range but those that name everybody. */
export const strangerAddress: AddressPair = { v4: "192.0.2.200", v6: "2001:db8:1::200" };

/**
 * More addresses of the client, to see that clients are spread: that all go to one of two endpoints by accident happens
 * once in eight million times.
 */
export const crowdAddresses: readonly AddressPair[] = Array.from({ length: 24 }, (_, index) => ({
  v4: `192.0.2.${100 + index}`,
  v6: `2001:db8:1::${100 + index}`,
}));

/** An address outside the cluster that n1 has on its loopback device, as MetalLB and others bind load-balancer IPs. */
export const boundAddress: AddressPair = { v4: "198.51.100.99", v6: "2001:db8:100::99" };

/** Another host on the nodes' network, which sends what is for 127.0.0.0/8 to n1. */
export const neighbourAddress: AddressPair = { v4: "192.0.2.30", v6: "2001:db8:1::30" };

/** Ranges of client addresses, with what they contain. */
export const ranges = {
  /** The client, neither the stranger nor a node. */
  outside: { v4: "192.0.2.16/28", v6: "2001:db8:1::20/124" },
  /** The nodes only. */
  nodes: { v4: "192.0.2.0/29", v6: "2001:db8:1::/125" },
  /** Every address of the family. */
  everybody: { v4: "0.0.0.0/0", v6: "::/0" },
  /** n1's network outside: not its bridge. */
  lan: { v4: "192.0.2.0/24", v6: "2001:db8:1::/64" },
} as const satisfies Readonly<Record<string, AddressPair>>;

/** The bridge that n1's pods are on; the pods' ends of their links begin with `podLinkPrefix`. */
export const bridgeName = "cbr0";
