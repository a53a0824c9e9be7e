import { publicAddress, type ServiceOptions } from "./build.ts";
import { clusterIP, loadBalancerIP, nodeAddress, outside, pod } from "./packet.ts";

/** What makes the Service "web" one that is reached in every way. */
export const everywhere: ServiceOptions = {
  ports: [{ port: 80, nodePort: 30_080 }],
  loadBalancerIPs: [publicAddress(10)],
};

/** A packet to it from a pod on the node. */
export const inside = { from: pod("a"), to: clusterIP("web"), port: 80 } as const;
/** From outside, to its node port. */
export const nodePort = { from: outside, to: nodeAddress, port: 30_080 } as const;
/** From outside, to its load-balancer IP. */
export const balancer = { from: outside, to: loadBalancerIP("web"), port: 80 } as const;
