import type { FirstPacket } from "@kpng/service-plan/testing/outcomes.ts";
import { isLoopback } from "../plan-node.ts";
import type { Frontend, ServicePlan, ServicePortPlan, WholeAddressPlan } from "../service-plan.ts";
import type { PlannedNode } from "./outcomes.ts";
import type { RandomState } from "./random-views.ts";

/**
 * Returns packets to each frontend of a random state, from every kind of sender: the node by two of its addresses, pods
 * of this node and another, outside clients in and outside of source ranges, and the frontend's own endpoints.
 * `outcomes.slow.test.ts` of backend-iptables follows each through plans and rules.
 */
export function* packetsTo(planned: PlannedNode, { localAddresses }: RandomState): Generator<FirstPacket> {
  const { family } = planned.node;
  const own = localAddresses[family];
  for (const each of placesOf(planned)) {
    const { address, protocol, port } = each;
    for (const destination of address === undefined ? own : [address]) {
      const to = { protocol: protocol.toLowerCase(), destination, port };
      const sources = own.includes(destination) ? [destination] : own.slice(0, 2);
      for (const source of sources) yield { ...to, source, inInterface: undefined };
      // Packets to loopback addresses do not leave their node.
      if (isLoopback(destination)) continue;
      for (const source of clients[family].pods) yield { ...to, source, inInterface: "cbr0" };
      for (const source of clients[family].others) yield { ...to, source, inInterface: "eth0" };
      for (const source of endpointsOf(each)) {
        if (!own.includes(source)) yield { ...to, source, inInterface: source.includes("1.1") ? "cbr0" : "eth0" };
      }
    }
  }
  const known = { destination: own[0] ?? "", source: own[0] ?? "", inInterface: undefined };
  for (const port of [...planned.healthCheckPorts, 9]) {
    for (const protocol of ["tcp", "udp"]) yield { ...known, protocol, port };
  }
}

const clients = {
  v4: { pods: ["10.1.1.200"], others: ["10.1.2.200", "192.0.2.20", "192.0.2.200", "198.18.0.1"] },
  v6: { pods: ["fd00:1:1::200"], others: ["fd00:1:2::200", "2001:db8:1::20", "2001:db8:1::200", "2001:2::1"] },
} as const;

/** A place to send packets to, and the plans that it belongs to. */
interface Place extends Pick<Frontend, "address" | "protocol" | "port"> {
  readonly service: ServicePlan;
  readonly sets: (ServicePortPlan | WholeAddressPlan)["sets"];
}

/** Returns each frontend, and some ports of each whole address, some of which a port of a Service may have, too. */
function placesOf({ frontends, whole }: PlannedNode): readonly Place[] {
  const protocols = ["TCP", "UDP", "SCTP"] as const;
  const ofPorts = [...frontends.values()].map(({ service, port: { sets }, frontend: { address, protocol, port } }) => {
    return { service, sets, address, protocol, port };
  });
  const ofWhole = [...whole.values()].flatMap(({ service, port: { sets }, frontend: { address } }) =>
    protocols.flatMap((protocol) => [80, 4_321].map((port) => ({ service, sets, address, protocol, port }))),
  );
  return [...ofPorts, ...ofWhole];
}

/** Endpoints that may reach themselves; those of other nodes only if the Service's own plan is about them. */
function endpointsOf({ service, sets }: Place): readonly string[] {
  const endpoints = [...sets.cluster, ...sets.local].map(({ address }) => address);
  return [...new Set(endpoints)].filter((address) => service.hairpin.includes(address));
}
