import { readProxySettings } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import { bridgeName, podCIDRs } from "@kpng/laboratory/scenario/places.ts";
import type { Settings } from "@kpng/laboratory/scenario/scenario.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";

/** Returns the settings of a scenario as a process of ours reads them from its options. */
export function proxySettingsOf(settings: Settings): ProxySettings {
  const { detectLocal = "ClusterCIDR", nodePortAddresses = [], localhostNodePorts = true, masqueradeAll } = settings;
  const options = {
    detectLocalMode: detectLocal === "none" ? "ClusterCIDR" : detectLocal,
    clusterCidr: detectLocal === "ClusterCIDR" ? Object.values(podCIDRs.cluster) : [],
    podBridgeInterface: bridgeName,
    podInterfaceNamePrefix: bridgeName.slice(0, 3),
    masqueradeAll,
    nodeportAddresses: nodePortAddresses,
  };
  return readProxySettings(options, localhostNodePorts);
}
