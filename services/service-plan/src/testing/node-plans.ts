import type { NodePlan } from "../service-plan.ts";

/** Returns a node that recognizes pods by their addresses, for tests of plans and of the backends that render them. */
export function nodePlan(parts: Partial<NodePlan> = {}): NodePlan {
  const isV6 = parts.family === "v6";
  return {
    family: "v4",
    podTraffic: { kind: "source", cidr: isV6 ? "fd00:10::/64" : "10.0.0.0/8" },
    isMasqueradeAll: false,
    nodePortAddresses: "all",
    isLoopbackNodePorts: !isV6,
    nodeAddress: isV6 ? "2001:db8::1" : "192.168.0.2",
    serviceCIDRs: [],
    ...parts,
  };
}
