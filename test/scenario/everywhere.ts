import { publicAddress, type ServiceOptions } from "./build.ts";
import { clusterIP, loadBalancerIP, nodeAddress, outside, pod } from "./packet.ts";

/** Options that give the Service "web" every kind of frontend. */
export const everywhere: ServiceOptions = {
  ports: [{ port: 80, nodePort: 30_080 }],
  loadBalancerIPs: [publicAddress(10)],
};

/**
 * kube-proxy's nftables mode refuses packets to a known cluster IP with an unknown port or protocol. In ipvs mode the
 * cluster IP is an address of the node, whose own servers must not answer there.
 */
export const refusedByNftables = {
  except: {
    nft: { verdict: "refused", because: "known cluster IP, unknown port" },
    ipvs: { verdict: "refused", because: "the cluster IP is an address of the node" },
  },
} as const;

/** The same for addresses that nftables mode does not know as cluster IPs. */
export const refusedAtOwnAddress = {
  except: {
    ipvs: { verdict: "refused", because: "the address is one of the node" },
  },
} as const;

/**
 * No address of a Service, but the Service of the scenario before may have had it. With IPVS
 * it stays while connections end, in the guest for minutes.
 */
export const refusedWhileDraining = {
  except: {
    ipvs: { verdict: "refused", because: "the address of a deleted Service stays until its connections have ended" },
  },
} as const;

/** Some clients of the frontend have an endpoint, and this one has none. */
export const resetByUserspace = {
  except: {
    userspace: { verdict: "reset", because: "a process can turn away only a connection that it has accepted" },
  },
} as const;

/**
 * kube-proxy's nftables mode does not serve node ports on the loopback address, and neither do kpng-userspace and IPVS.
 * Sockets of kpng-ebpf connect to an endpoint instead.
 */
export const notOnLoopback = {
  except: {
    ebpf: { goesTo: ["b", "c"], because: "sockets of the node choose an endpoint themselves" },
    nft: { verdict: "untouched", because: "no node ports on loopback" },
    userspace: { verdict: "untouched", because: "no node ports on loopback" },
    ipvs: { verdict: "untouched", because: "IPVS does not forward packets from 127.0.0.1" },
  },
} as const;

/** Packet from a pod on the node to the cluster IP. */
export const inside = { from: pod("a"), to: clusterIP("web"), port: 80 } as const;
/** Packet from outside to the node port. */
export const nodePort = { from: outside, to: nodeAddress, port: 30_080 } as const;
/** Packet from outside to the load-balancer IP. */
export const balancer = { from: outside, to: loadBalancerIP("web"), port: 80 } as const;
