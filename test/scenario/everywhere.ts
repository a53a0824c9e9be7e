import { publicAddress, type ServiceOptions } from "./build.ts";
import { clusterIP, loadBalancerIP, nodeAddress, outside, pod } from "./packet.ts";

/** Options that give the Service "web" every kind of frontend. */
export const everywhere: ServiceOptions = {
  ports: [{ port: 80, nodePort: 30_080 }],
  loadBalancerIPs: [publicAddress(10)],
};

/** kube-proxy's nftables mode refuses packets to a known cluster IP with an unknown port or protocol. */
export const refusedByNftables = {
  except: { nft: { verdict: "refused", because: "known cluster IP, unknown port" } },
} as const;

/** kube-proxy's nftables mode does not serve node ports on the loopback address. */
export const notOnLoopback = {
  except: { nft: { verdict: "untouched", because: "no node ports on loopback" } },
} as const;

/** Packet from a pod on the node to the cluster IP. */
export const inside = { from: pod("a"), to: clusterIP("web"), port: 80 } as const;
/** Packet from outside to the node port. */
export const nodePort = { from: outside, to: nodeAddress, port: 30_080 } as const;
/** Packet from outside to the load-balancer IP. */
export const balancer = { from: outside, to: loadBalancerIP("web"), port: 80 } as const;
