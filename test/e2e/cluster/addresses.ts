/** Address families of a cluster, in the order of Kubernetes: the first is that of a Service by default. */
export type Family = "ipv4" | "ipv6";
export type Families = readonly [Family, ...Family[]];

/**
 * Addresses of a test cluster. They exist only in the network namespaces of its laboratory, so every cluster has the
 * same.
 */
export interface Addresses {
  readonly families: Families;
  /** Host of the control plane and of the tests, one address for each family. */
  readonly controlPlane: readonly string[];
  /** CIDRs of all pods, for --cluster-cidr. */
  readonly podCIDRs: readonly string[];
  readonly serviceCIDRs: readonly string[];
  /** Cluster IP of the API server's Service, of the first family. */
  readonly kubernetes: string;
  /** Cluster IP of the DNS Service, of the first family. */
  readonly dns: string;
  readonly nodes: readonly NodeAddresses[];
}

export interface NodeAddresses {
  readonly name: string;
  readonly zone: string;
  /** One for each family, as in all arrays here. */
  readonly addresses: readonly string[];
  readonly podCIDRs: readonly string[];
}

interface FamilyPlan {
  readonly prefix: number;
  readonly controlPlane: string;
  readonly pods: string;
  readonly services: string;
  readonly kubernetes: string;
  readonly dns: string;
  readonly node: (number: number) => { readonly address: string; readonly podCIDR: string };
}

const plans: Readonly<Record<Family, FamilyPlan>> = {
  ipv4: {
    prefix: 24,
    controlPlane: "10.250.0.1",
    pods: "10.251.0.0/16",
    services: "10.96.0.0/16",
    kubernetes: "10.96.0.1",
    dns: "10.96.0.10",
    node: (number) => ({ address: `10.250.0.1${number}`, podCIDR: `10.251.${number}.0/24` }),
  },
  ipv6: {
    prefix: 64,
    controlPlane: "fd00:250::1",
    pods: "fd00:251::/48",
    services: "fd00:10:96::/112",
    kubernetes: "fd00:10:96::1",
    dns: "fd00:10:96::a",
    node: (number) => ({ address: `fd00:250::1${number}`, podCIDR: `fd00:251:0:${number}::/64` }),
  },
};

/** Returns the addresses of a cluster of `nodeCount` nodes, at most 9. The nodes n1, n2, … are in three zones. */
export function addressesOf(families: Families, nodeCount: number): Addresses {
  const each = families.map((family) => plans[family]);
  return {
    families,
    controlPlane: each.map(({ controlPlane }) => controlPlane),
    podCIDRs: each.map(({ pods }) => pods),
    serviceCIDRs: each.map(({ services }) => services),
    kubernetes: plans[families[0]].kubernetes,
    dns: plans[families[0]].dns,
    nodes: Array.from({ length: nodeCount }, (_, index) => {
      const places = each.map(({ node }) => node(index + 1));
      return {
        name: `n${index + 1}`,
        zone: `zone-${(index % 3) + 1}`,
        addresses: places.map(({ address }) => address),
        podCIDRs: places.map(({ podCIDR }) => podCIDR),
      };
    }),
  };
}

/** Returns the length of the prefix of the network that nodes and control plane share: `10.250.0.11` → 24. */
export function prefixOf(address: string): number {
  return plans[isIPv6(address) ? "ipv6" : "ipv4"].prefix;
}

export function isIPv6(address: string): boolean {
  return address.includes(":");
}

/** Returns host and port as a URL has them: `[fd00::1]:80`. */
export function hostAndPort(address: string, port: number): string {
  return isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
}
