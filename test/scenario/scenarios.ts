import { affinityScenarios } from "./cases/affinity.ts";
import { claimScenarios } from "./cases/claims.ts";
import { clusterIPScenarios } from "./cases/cluster-ip.ts";
import { conditionScenarios } from "./cases/conditions.ts";
import { firewallScenarios } from "./cases/firewall.ts";
import { loadBalancerScenarios } from "./cases/load-balancer.ts";
import { loopbackScenarios, masqueradeScenarios } from "./cases/masquerade.ts";
import { nodePortScenarios, sctpScenarios } from "./cases/node-port.ts";
import { healthCheckScenarios, trafficPolicyScenarios } from "./cases/traffic-policy.ts";
import type { KubeProxyName } from "./proxy-name.ts";
import type { Scenario } from "./scenario.ts";

/** All scenarios. Scenarios with equal settings are adjacent, because other settings need a restart of the backend. */
export const scenarios: readonly Scenario[] = [
  ...clusterIPScenarios,
  ...nodePortScenarios,
  ...loadBalancerScenarios,
  ...claimScenarios,
  ...trafficPolicyScenarios,
  ...conditionScenarios,
  ...affinityScenarios,
  ...healthCheckScenarios,
  ...masqueradeScenarios,
  ...loopbackScenarios,
  ...sctpScenarios,
  ...firewallScenarios,
].toSorted((one, other) => settingsKey(one).localeCompare(settingsKey(other)));

/** Returns a key that is equal for scenarios with equal settings, which one run of a backend can serve. */
export function settingsKey({ settings = {} }: Pick<Scenario, "settings">): string {
  return JSON.stringify(Object.entries(settings).filter(([, value]) => value !== undefined));
}

/** The scenarios that kube-proxy runs in a mode: those in which its result does not vary. */
export function scenariosOf(proxy: KubeProxyName): readonly Scenario[] {
  return scenarios.filter(({ variesWith }) => variesWith?.[proxy] === undefined);
}
