import type { Selection } from "./report.ts";

/** The tests of sig-network whose results depend on the Service proxy. */
const serviceTests =
  /\[sig-network\] (Services|Conntrack|Topology Hints|Traffic Distribution|KubeProxy|EndpointSlice|Networking Granular Checks: Services)/;

/** Reasons not to run a test, the same for every proxy. */
const excluded: Selection["excluded"] = [
  { pattern: /\[Disruptive\]/, reason: "disruptive: restarts programs of the cluster over SSH" },
  { pattern: /SCTP/i, reason: "SCTP: the kernel of the test machine lacks it" },
  { pattern: /\[Feature:LoadBalancer\]/, reason: "needs a cloud provider's load balancers" },
  { pattern: /\[Feature:/, reason: "needs a feature that this cluster lacks" },
  { pattern: /\[Slow\]/, reason: "slow: takes minutes" },
];

/** Six short tests of different kinds, for `npm test`. */
const quickTests = new RegExp(
  [
    "Services should serve a basic endpoint from pods",
    "Services should allow pods to hairpin back to themselves through services",
    "Services should be rejected when no endpoints exist",
    "Services should be updated after adding or deleting ports",
    "Services should be possible to connect to a service via ExternalIP when the external IP is not assigned to a node",
    "EndpointSlice should support a Service with multiple ports specified in multiple EndpointSlices",
  ]
    .map((name) => `\\[sig-network\\] ${name}`)
    .join("|"),
);

/** Returns the tests to run. `focus`, a regular expression, replaces the default. Errors: an invalid expression. */
export function selectTests(focus: string | undefined, set: "all" | "quick" = "all"): Selection {
  if (focus !== undefined) return { focus: new RegExp(focus), excluded };
  return { focus: set === "quick" ? quickTests : serviceTests, excluded };
}
