import { affinityScenarios } from "./affinity.ts";
import { claimScenarios } from "./claims.ts";
import { clusterIPScenarios } from "./cluster-ip.ts";
import { conditionScenarios } from "./conditions.ts";
import { firewallScenarios } from "./firewall.ts";
import { loadBalancerScenarios } from "./load-balancer.ts";
import { loopbackScenarios, masqueradeScenarios } from "./masquerade.ts";
import { nodePortScenarios, sctpScenarios } from "./node-port.ts";
import type { Scenario } from "./scenario.ts";
import { healthCheckScenarios, trafficPolicyScenarios } from "./traffic-policy.ts";
import { wholeAddressScenarios } from "./whole-address.ts";

/** All scenarios. Scenarios with equal settings are adjacent, because other settings need a restart of the backend. */
export const scenarios: readonly Scenario[] = [
  ...clusterIPScenarios,
  ...nodePortScenarios,
  ...loadBalancerScenarios,
  ...claimScenarios,
  ...wholeAddressScenarios,
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
