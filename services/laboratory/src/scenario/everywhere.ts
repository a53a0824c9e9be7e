import { publicAddress, type ServiceOptions } from "./build.ts";
import { clusterIP, loadBalancerIP, localhost, n1, nodeAddress, outside, type Packet, pod } from "./packet.ts";

/** Options that give the Service "web" a node port and a load-balancer IP, besides its cluster IP. */
export const everywhere: ServiceOptions = {
  ports: [{ port: 80, nodePort: 30_080 }],
  loadBalancerIPs: [publicAddress(10)],
};

/** For a packet to a cluster IP at a port that its Service does not have. */
export const unknownPort = { deviations: { "unknown-port-refused": { verdict: "refused" } } } as const;

/** For a packet to another address of a Service at a port that no Service has. */
export const unknownAddressPort = { deviations: { "service-address-refused": { verdict: "refused" } } } as const;

/**
 * For a packet to an address that no Service has, but that the Service of the scenario before may have had. With IPVS it
 * stays while connections end, in a guest for minutes, and then goes, perhaps just now.
 */
export const deletedAddress = { deviations: { "deleted-address-refused": { verdict: "unanswered" } } } as const;

/** For a packet that is dropped at a frontend where other clients have an endpoint. */
export const droppedOrReset = { deviations: { "reset-instead-of-drop": { verdict: "reset" } } } as const;

/** For a packet of the node to a node port on its loopback address. */
export const onLoopback = { deviations: { "no-loopback-node-ports": { verdict: "untouched" } } } as const;

/** Packet from a pod on the node to the cluster IP. */
export const inside = { from: pod("a"), to: clusterIP("web"), port: 80 } as const;
/** Packet from outside to the node port. */
export const nodePort = { from: outside, to: nodeAddress, port: 30_080 } as const;
/** Packet from the node to the node port on its loopback address, with the endpoints b and c. */
export const loopbackNodePort: Packet = {
  ...{ from: n1, to: localhost, port: 30_080, family: "v4", goesTo: ["b", "c"], source: "masqueraded" },
  ...onLoopback,
};
/** Packet from outside to the load-balancer IP. */
export const balancer = { from: outside, to: loadBalancerIP("web"), port: 80 } as const;
