import { publicAddress, web } from "../build.ts";
import { refusedByNftables } from "../everywhere.ts";
import { clusterIP, loadBalancerIP, n1, nodeAddress, outside, pod } from "../packet.ts";
import type { Scenario } from "../scenario.ts";

const ports = [{ port: 80, nodePort: 30_080, protocols: ["sctp", "tcp"] as const }];
/** kpng-userspace leaves SCTP alone. */
const notServed = {
  except: {
    userspace: { verdict: "untouched", because: "Node.js has no SCTP sockets" },
  },
} as const;
const sctp = { protocol: "sctp", goesTo: ["b", "c"], ...notServed } as const;

/** SCTP, which a service proxy treats like TCP. */
export const sctpScenarios: readonly Scenario[] = [
  {
    name: "SCTP beside TCP on one port",
    state: web({ ports, loadBalancerIPs: [publicAddress(10)] }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, ...sctp, source: "kept" },
      { from: n1, to: clusterIP("web"), port: 80, ...sctp, source: "masqueraded" },
      { from: outside, to: nodeAddress, port: 30_080, ...sctp, source: "masqueraded" },
      { from: outside, to: loadBalancerIP("web"), port: 80, ...sctp, source: "masqueraded" },
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "udp", verdict: "untouched", ...refusedByNftables },
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "tcp", goesTo: ["b", "c"], source: "kept" },
    ],
  },
  {
    name: "SCTP without an endpoint",
    state: web({ ports }, []),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "sctp", verdict: "refused", ...notServed },
      { from: outside, to: nodeAddress, port: 30_080, protocol: "sctp", verdict: "refused", ...notServed },
    ],
  },
];
