import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import { oneOf } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type OptionSpec, parseDurationMs, parsePositiveDurationMs, parseWholeNumber } from "@kpng/process/options.ts";
import { shadowMode } from "@kpng/shadow/shadow-mode.ts";
import { InvalidArgumentError } from "commander";
import type { IptablesChange } from "./commit/iptables-change.ts";
import { openRuleSets } from "./commit/open-rule-sets.ts";
import { removeRules } from "./commit/remove-rules.ts";
import { chainNames, isChainPrefix, maxPrefixLength, prefixOf } from "./render/chain-names.ts";

/** Options of the iptables backend alone; those that kube-proxy has carry its names. */
const iptablesOptions: readonly OptionSpec[] = [
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
];

/** Makes this node's iptables rules serve the Services of its view, as kube-proxy's iptables mode does. */
export const iptablesBackend = proxyBackend({
  name: "iptables",
  proxyMode: "iptables",
  description: "serve Services with iptables rules on this node, as kube-proxy does, beside kube-proxy or in its place",
  options: iptablesOptions,
  alternatives: [shadowMode("iptables", "iptables")],
  examples: `
Examples:
  # as kube-proxy would be started
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # what would be done to this node's rules, without doing it
  COMMAND --node-name n1 --once --dry-run

  # whether somebody else has changed the rules: exit code 0 for no, 1 for yes, 2 if it could not be found out
  COMMAND --node-name n1 --diff

  # where kube-proxy, which serves this node, would treat packets otherwise; nothing is changed
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16 --shadow

  # remove every rule that was ever made
  COMMAND --cleanup

Rules stay when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeProxy,
});

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<IptablesChange> {
  const prefix = typeof options.chainPrefix === "string" ? options.chainPrefix : prefixOf(serviceProxyName);
  const settings = { names: chainNames(prefix), masqueradeBit: Number(options.iptablesMasqueradeBit ?? 14) };
  const limits = {
    lockSeconds: Math.ceil(Number(options.iptablesLockTimeout ?? 5_000) / 1_000),
    timeoutMs: Number(options.iptablesTimeout ?? 300_000),
  };
  const { iptablesVariant } = options;
  const variant = iptablesVariant === "nft" || iptablesVariant === "legacy" ? iptablesVariant : "auto";
  return {
    wantsLoopbackNodePorts: options.iptablesLocalhostNodeports !== false,
    openRuleSets: (host) => openRuleSets({ settings, variant, ...limits }, host),
    cleanUp: ({ sysctls, log }) => removeRules({ prefix, ...limits, sysctls, log }),
  };
}

function trueOrFalse(text: string): boolean {
  if (text === "true" || text === "false") return text === "true";
  throw new InvalidArgumentError("write true or false");
}
