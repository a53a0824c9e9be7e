import { parseNodePortAddresses } from "@kpng/backend-kit/node-addresses/node-port-addresses.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type Family, parseCidr } from "@kpng/model/address.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { resolveNodePortAddresses } from "@kpng/service-plan/node-port-addresses.ts";
import { detectLocalModes } from "@kpng/service-plan/plan-node.ts";
import { chainNames, prefixOf } from "./render/chain-names.ts";
import type { Settings } from "./render/settings.ts";

/**
 * Turns the parsed options into settings.
 *
 * Errors: BAD_OPTION for values that do not go together.
 */
export function readSettings(options: ParsedOptions, serviceProxyName: string): Settings {
  const detectLocalMode = detectLocalModes.find((mode) => mode === options.detectLocalMode) ?? "ClusterCIDR";
  const podBridgeInterface = String(options.podBridgeInterface ?? "");
  const podInterfaceNamePrefix = String(options.podInterfaceNamePrefix ?? "");
  if (detectLocalMode === "BridgeInterface" && podBridgeInterface === "") {
    throw new ProcessError("BAD_OPTION", "--detect-local-mode BridgeInterface needs --pod-bridge-interface");
  }
  if (detectLocalMode === "InterfaceNamePrefix" && podInterfaceNamePrefix === "") {
    throw new ProcessError("BAD_OPTION", "--detect-local-mode InterfaceNamePrefix needs --pod-interface-name-prefix");
  }
  const nodePortAddresses = parseNodePortAddresses(texts(options.nodeportAddresses));
  // Node ports on localhost need that localhost is among the addresses that have node ports at all.
  const loopback = { local: { v4: ["127.0.0.1"], v6: [] }, ofNode: [] };
  const chosen = resolveNodePortAddresses(nodePortAddresses, "v4", loopback);
  const hasLoopback = nodePortAddresses.kind === "cidrs" && (chosen.kind === "all" || chosen.addresses.length > 0);
  return {
    names: chainNames(typeof options.chainPrefix === "string" ? options.chainPrefix : prefixOf(serviceProxyName)),
    masqueradeBit: Number(options.iptablesMasqueradeBit ?? 14),
    isMasqueradeAll: options.masqueradeAll === true,
    detectLocalMode,
    clusterCIDRs: clusterCidrs([...texts(options.clusterCidr), ...texts(options.clusterCidrs)]),
    podBridgeInterface,
    podInterfaceNamePrefix,
    isLoopbackNodePorts: options.iptablesLocalhostNodeports !== false && hasLoopback,
    nodePortAddresses,
  };
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/** One CIDR a family: pods outside the one that counts would be taken for strangers. */
function clusterCidrs(texts: readonly string[]): readonly string[] {
  const ofFamily = new Map<Family, string>();
  for (const text of texts) {
    const parsed = parseCidr(text);
    if (parsed === undefined) {
      throw new ProcessError("BAD_OPTION", `--cluster-cidr "${text}" is no CIDR: write 10.244.0.0/16 or fd00:10::/48`);
    }
    const { family, cidr } = parsed;
    const other = ofFamily.get(family) ?? cidr;
    if (other !== cidr) {
      throw new ProcessError(
        "BAD_OPTION",
        `--cluster-cidr: ${other} and ${cidr} are of one family, which has one CIDR`,
      );
    }
    ofFamily.set(family, cidr);
  }
  return [...ofFamily.values()];
}
