import { type Family, parseCidr } from "@kpng/model/address.ts";
import { type OptionSpec, parseDurationMs, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { resolveNodePortAddresses } from "@kpng/service-plan/node-port-addresses.ts";
import { type DetectLocalMode, detectLocalModes, type ProxySettings } from "@kpng/service-plan/plan-node.ts";
import { InvalidArgumentError } from "commander";
import { nodePortAddressesOption, parseNodePortAddresses } from "../node-addresses/node-port-addresses.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

/** Options that decide which packets are served and masqueraded; kube-proxy's names. */
export const planOptions: readonly OptionSpec[] = [
  repeatable(
    "--cluster-cidr <cidrs>",
    "addresses of all pods, one CIDR per family, for --detect-local-mode ClusterCIDR",
  ),
  repeatable("--cluster-cidrs <cidrs>", "the same under KPNG's name"),
  {
    flags: "--detect-local-mode <mode>",
    description: `how pods of this node are told from others: ${detectLocalModes.join(", ")}`,
    default: "ClusterCIDR",
    parse: oneOf("--detect-local-mode", detectLocalModes),
  },
  {
    flags: "--pod-bridge-interface <name>",
    description: "the bridge that pods are on, for --detect-local-mode BridgeInterface",
    default: "",
    parse: interfaceName,
  },
  {
    flags: "--pod-interface-name-prefix <prefix>",
    description: "what the names of pods' interfaces begin with, for --detect-local-mode InterfaceNamePrefix",
    default: "",
    parse: interfaceName,
  },
  { flags: "--masquerade-all", description: "give every connection to a cluster IP the node's address" },
  nodePortAddressesOption,
];

/**
 * Returns when syncs and checks run. `proxy` is kube-proxy's name of the mode, with which its options begin:
 * "iptables", "nftables", "ipvs".
 */
export function paceOptions(proxy: string): readonly OptionSpec[] {
  return [
    {
      flags: `--${proxy}-sync-period <duration>`,
      description: "how often to look whether somebody else changed the rules, and to repair them; 0 for never",
      default: 30_000,
      parse: parseDurationMs,
    },
    {
      flags: "--drift-interval <duration>",
      description: `the same under a name of its own (default: --${proxy}-sync-period)`,
      parse: parseDurationMs,
    },
    {
      flags: `--${proxy}-min-sync-period <duration>`,
      description: "shortest time between two syncs; what changes meanwhile is one sync",
      default: 100,
      parse: parseDurationMs,
    },
  ];
}

/**
 * Reads {@link planOptions}. Node ports answer on 127.0.0.0/8 if the backend wants that and the node-port addresses
 * include it.
 *
 * Errors: BAD_OPTION for values that do not go together.
 */
export function readProxySettings(options: ParsedOptions, wantsLoopbackNodePorts: boolean): ProxySettings {
  const detectLocalMode = detectLocalModes.find((mode) => mode === options.detectLocalMode) ?? "ClusterCIDR";
  const podBridgeInterface = String(options.podBridgeInterface ?? "");
  const podInterfaceNamePrefix = String(options.podInterfaceNamePrefix ?? "");
  requireInterface(detectLocalMode, podBridgeInterface, podInterfaceNamePrefix);
  const nodePortAddresses = parseNodePortAddresses(texts(options.nodeportAddresses));
  const loopback = { local: { v4: ["127.0.0.1"], v6: [] }, ofNode: [] };
  const chosen = resolveNodePortAddresses(nodePortAddresses, "v4", loopback);
  const hasLoopback = nodePortAddresses.kind === "cidrs" && (chosen.kind === "all" || chosen.addresses.length > 0);
  return {
    isMasqueradeAll: options.masqueradeAll === true,
    detectLocalMode,
    clusterCIDRs: clusterCidrs([...texts(options.clusterCidr), ...texts(options.clusterCidrs)]),
    podBridgeInterface,
    podInterfaceNamePrefix,
    isLoopbackNodePorts: wantsLoopbackNodePorts && hasLoopback,
    nodePortAddresses,
  };
}

/** Parser of an option that has one of a few values. */
export function oneOf(flag: string, values: readonly string[]): (text: string) => string {
  return (text) => {
    if (values.includes(text)) return text;
    throw new InvalidArgumentError(`${flag} is one of ${values.join(", ")}`);
  };
}

function requireInterface(mode: DetectLocalMode, bridge: string, prefix: string): void {
  if (mode === "BridgeInterface" && bridge === "") {
    throw new ProcessError("BAD_OPTION", "--detect-local-mode BridgeInterface needs --pod-bridge-interface");
  }
  if (mode === "InterfaceNamePrefix" && prefix === "") {
    throw new ProcessError("BAD_OPTION", "--detect-local-mode InterfaceNamePrefix needs --pod-interface-name-prefix");
  }
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/** One CIDR for each family: pods outside the CIDR that is used would be taken for other senders. */
function clusterCidrs(texts: readonly string[]): readonly string[] {
  const byFamily = new Map<Family, string>();
  for (const text of texts) {
    const parsed = parseCidr(text);
    if (parsed === undefined) {
      throw new ProcessError("BAD_OPTION", `--cluster-cidr "${text}" is no CIDR: write 10.244.0.0/16 or fd00:10::/48`);
    }
    const { family, cidr } = parsed;
    const other = byFamily.get(family) ?? cidr;
    if (other !== cidr) {
      throw new ProcessError(
        "BAD_OPTION",
        `--cluster-cidr: ${other} and ${cidr} are of one family, which has one CIDR`,
      );
    }
    byFamily.set(family, cidr);
  }
  return [...byFamily.values()];
}

/** At most 15 characters, without characters that have a meaning for iptables or the kernel. */
function interfaceName(text: string): string {
  if (/^[^\s/+!"\\:]{0,15}$/.test(text)) return text;
  throw new InvalidArgumentError(`"${text}" is not a name of an interface`);
}
