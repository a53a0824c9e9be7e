import { type Family, parseCidr } from "@kpng/model/address.ts";
import { type OptionSpec, oneOf, parseDurationMs, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { detectLocalModes, type ProxySettings, resolveNodePortAddresses } from "@kpng/service-plan/plan-node.ts";
import { InvalidArgumentError } from "commander";
import { nodePortAddressesOption, parseNodePortAddresses } from "../node-addresses/local-addresses.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

/** Options that determine which packets are served and masqueraded, with kube-proxy's names. */
export const planOptions: readonly OptionSpec[] = [
  {
    ...repeatable(
      "--cluster-cidr <cidrs>",
      "addresses of all pods, one CIDR per family, for --detect-local-mode ClusterCIDR",
    ),
    // KPNG's name for the option.
    aliases: ["--cluster-cidrs"],
  },
  {
    flags: "--detect-local-mode <mode>",
    description: `how to recognize traffic from pods of this node: ${detectLocalModes.join(", ")}`,
    default: "ClusterCIDR",
    parse: oneOf(detectLocalModes),
  },
  {
    flags: "--pod-bridge-interface <name>",
    description: "bridge that the pods are attached to, for --detect-local-mode BridgeInterface",
    default: "",
    parse: interfaceName,
  },
  {
    flags: "--pod-interface-name-prefix <prefix>",
    description: "prefix of the names of the pods' interfaces, for --detect-local-mode InterfaceNamePrefix",
    default: "",
    parse: interfaceName,
  },
  { flags: "--masquerade-all", description: "masquerade all connections to cluster IPs (source address of the node)" },
  nodePortAddressesOption,
];

/**
 * Returns the prefix of a mode's option names. The mode is the kube-proxy mode that uses the same kind of rules:
 * kpng-ebpf and kpng-userspace use nftables rules.
 */
export function optionPrefix(proxyMode: string): "iptables" | "ipvs" | "nftables" {
  return proxyMode === "iptables" || proxyMode === "ipvs" ? proxyMode : "nftables";
}

export function paceOptions(proxyMode: string): readonly OptionSpec[] {
  const prefix = optionPrefix(proxyMode);
  return [
    {
      flags: `--${prefix}-sync-period <duration>`,
      isExpert: true,
      description: "interval of checks that repair changes of the rules by other programs; 0 for no checks",
      default: 30_000,
      parse: parseDurationMs,
    },
    {
      flags: `--${prefix}-min-sync-period <duration>`,
      isExpert: true,
      description: "minimum time between two syncs; changes in between are combined",
      default: 100,
      parse: parseDurationMs,
    },
  ];
}

/**
 * Parses {@link planOptions}. Node ports answer on 127.0.0.0/8 if the backend wants that and the node-port addresses
 * include this range.
 *
 * Errors: BAD_OPTION for invalid values and combinations.
 */
export function readProxySettings(options: ParsedOptions, wantsLoopbackNodePorts: boolean): ProxySettings {
  const detectLocalMode = detectLocalModes.find((mode) => mode === options.detectLocalMode) ?? "ClusterCIDR";
  const podBridgeInterface = String(options.podBridgeInterface ?? "");
  const podInterfaceNamePrefix = String(options.podInterfaceNamePrefix ?? "");
  if (detectLocalMode === "BridgeInterface" && podBridgeInterface === "") {
    throw badOption("--detect-local-mode BridgeInterface needs --pod-bridge-interface");
  }
  if (detectLocalMode === "InterfaceNamePrefix" && podInterfaceNamePrefix === "") {
    throw badOption("--detect-local-mode InterfaceNamePrefix needs --pod-interface-name-prefix");
  }
  const nodePortAddresses = parseNodePortAddresses(texts(options.nodeportAddresses));
  // A node whose only address is 127.0.0.1 shows whether the rule includes it.
  const loopback = { local: { v4: ["127.0.0.1"], v6: [] }, ofNode: [] };
  const chosen = resolveNodePortAddresses(nodePortAddresses, "v4", loopback);
  const hasLoopback = nodePortAddresses.kind === "cidrs" && (chosen.kind === "all" || chosen.addresses.length > 0);
  return {
    isMasqueradeAll: options.masqueradeAll === true,
    detectLocalMode,
    clusterCIDRs: clusterCidrs(texts(options.clusterCidr)),
    podBridgeInterface,
    podInterfaceNamePrefix,
    isLoopbackNodePorts: wantsLoopbackNodePorts && hasLoopback,
    nodePortAddresses,
  };
}

const badOption = (text: string): ProcessError => new ProcessError("BAD_OPTION", text);

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/** Accepts one CIDR per family: traffic from pods outside of it would count as traffic from outside the cluster. */
function clusterCidrs(texts: readonly string[]): readonly string[] {
  const byFamily = new Map<Family, string>();
  for (const text of texts) {
    const parsed = parseCidr(text);
    if (parsed === undefined) {
      throw badOption(`--cluster-cidr "${text}" is not a CIDR: write 10.244.0.0/16 or fd00:10::/48`);
    }
    const { family, cidr } = parsed;
    const other = byFamily.get(family) ?? cidr;
    if (other !== cidr) {
      throw badOption(`--cluster-cidr: ${other} and ${cidr} have the same IP family; give one CIDR per family`);
    }
    byFamily.set(family, cidr);
  }
  return [...byFamily.values()];
}

/**
 * Parses the name of an interface: at most 15 characters, none of which has a special meaning for iptables or the
 * kernel. Errors: InvalidArgumentError.
 */
function interfaceName(text: string): string {
  if (/^[^\s/+!"\\:]{0,15}$/.test(text)) return text;
  throw new InvalidArgumentError(`"${text}" is not the name of an interface`);
}
