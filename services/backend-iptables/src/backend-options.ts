import { nodePortAddressesOption } from "@kpng/backend-kit/node-addresses/node-port-addresses.ts";
import {
  type OptionSpec,
  parseDurationMs,
  parsePositiveDurationMs,
  parseWholeNumber,
  repeatable,
} from "@kpng/process/options.ts";
import { detectLocalModes } from "@kpng/service-plan/plan-node.ts";
import { InvalidArgumentError } from "commander";
import { isChainPrefix, maxPrefixLength } from "./render/chain-names.ts";

/** Options of the iptables backend alone; those that kube-proxy has carry its names. */
export const iptablesOptions: readonly OptionSpec[] = [
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
  {
    flags: "--iptables-masquerade-bit <bit>",
    description: "bit of the packet mark that asks for the node's address; may be the one that kube-proxy uses",
    default: 14,
    parse: parseWholeNumber("--iptables-masquerade-bit", 0, 31),
  },
  {
    flags: "--iptables-localhost-nodeports <true|false>",
    description: "serve node ports on 127.0.0.1 too, for which route_localnet is set; IPv4 only",
    default: true,
    parse: trueOrFalse,
  },
  nodePortAddressesOption,
  {
    flags: "--iptables-sync-period <duration>",
    description: "how often to look whether somebody else changed the rules, and to repair them; 0 for never",
    default: 30_000,
    parse: parseDurationMs,
  },
  {
    flags: "--drift-interval <duration>",
    description: "the same under a name of its own (default: --iptables-sync-period)",
    parse: parseDurationMs,
  },
  {
    flags: "--iptables-min-sync-period <duration>",
    description: "shortest time between two syncs; what changes meanwhile is one sync",
    default: 100,
    parse: parseDurationMs,
  },
  {
    flags: "--iptables-variant <variant>",
    description: "which tools: auto (whatever `iptables` is here), nft or legacy",
    default: "auto",
    parse: oneOf("--iptables-variant", ["auto", "nft", "legacy"]),
  },
  {
    flags: "--iptables-lock-timeout <duration>",
    description: "how long to wait while another program holds the xtables lock",
    default: 5_000,
    parse: parseDurationMs,
  },
  {
    flags: "--iptables-timeout <duration>",
    description: "longest time that one iptables-restore or iptables-save may take",
    default: 300_000,
    parse: parsePositiveDurationMs,
  },
  {
    flags: "--chain-prefix <prefix>",
    description: "beginning of the names of all our chains (default: KPNG-, or KPNGxxx- with --service-proxy-name)",
    parse: (text) => {
      if (isChainPrefix(text)) return text;
      throw new InvalidArgumentError(
        `a chain prefix is capital letters and digits and one dash at its end, ${maxPrefixLength} characters at most, and not that of kube-proxy or another well-known program`,
      );
    },
  },
  { flags: "--dry-run", description: "print what iptables-restore would be given, and change nothing" },
  {
    flags: "--diff",
    description:
      "print how the rules in the kernel differ from what they should be, change nothing, and end: 0 if they do not, 1 if they do, 2 if it could not be found out",
  },
  {
    flags: "--shadow",
    description: "change nothing; tell where kube-proxy's rules on this node treat packets otherwise than ours would",
  },
  {
    flags: "--shadow-interval <duration>",
    description: "with --shadow: time between two comparisons",
    default: 10_000,
    parse: parsePositiveDurationMs,
  },
  {
    flags: "--shadow-settle <duration>",
    description:
      "with --shadow: how long a difference must last to be told; one proxy is always the first with a change",
    default: 5_000,
    parse: parseDurationMs,
  },
  {
    flags: "-o, --output <format>",
    description: "with --shadow and --diff: table, json or yaml",
    default: "table",
    parse: oneOf("--output", ["table", "json", "yaml"]),
  },
  { flags: "--cleanup", description: "remove all our chains and jumps, of both families, and end" },
];

function oneOf(name: string, values: readonly string[]): (text: string) => string {
  return (text) => {
    if (values.includes(text)) return text;
    throw new InvalidArgumentError(`${name} is one of ${values.join(", ")}`);
  };
}

function trueOrFalse(text: string): boolean {
  if (text === "true" || text === "false") return text === "true";
  throw new InvalidArgumentError("write true or false");
}

/** At most 15 characters, none of which iptables or the kernel takes for something else. */
function interfaceName(text: string): string {
  if (/^[^\s/+!"\\:]{0,15}$/.test(text)) return text;
  throw new InvalidArgumentError(`"${text}" is no name of an interface`);
}
