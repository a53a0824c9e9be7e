import { web } from "../build.ts";
import { notOnLoopback } from "../everywhere.ts";
import { localhost, n1, neighbour, nodeAddress } from "../packet.ts";
import type { Scenario } from "../scenario.ts";

const nodePort = { ports: [{ port: 80, nodePort: 30_080 }] };

/** Node ports on 127.0.0.1: they need `route_localnet`, which alone would expose the loopback address to neighbours. */
export const loopbackScenarios: readonly Scenario[] = [
  {
    name: "a neighbour cannot reach servers on the node's loopback address",
    state: web(nodePort, ["b", "c"]),
    packets: [
      { from: neighbour, to: localhost, port: 30_099, family: "v4", verdict: "silent" },
      { from: n1, to: localhost, port: 30_099, family: "v4", verdict: "untouched" },
      {
        from: n1,
        to: localhost,
        port: 30_080,
        family: "v4",
        goesTo: ["b", "c"],
        source: "masqueraded",
        ...notOnLoopback,
      },
      // A node port is open to everyone on every address of the node.
      {
        ...{ from: neighbour, to: localhost, port: 30_080, family: "v4", goesTo: ["b", "c"], source: "masqueraded" },
        except: {
          nft: { verdict: "silent", because: "as kube-proxy in nftables mode" },
          userspace: { verdict: "silent", because: "no node ports on loopback" },
          ipvs: { verdict: "silent", because: "IPVS does not serve 127.0.0.1" },
        },
      },
      { from: neighbour, to: nodeAddress, port: 30_080, goesTo: ["b", "c"], source: "masqueraded" },
    ],
  },
  {
    name: "a neighbour and the loopback address, without an endpoint",
    state: web(nodePort, []),
    packets: [{ from: neighbour, to: localhost, port: 30_080, family: "v4", verdict: "silent" }],
  },
];
