import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type OptionSpec, oneOf, parseWholeNumber } from "@kpng/process/options.ts";
import { InvalidArgumentError } from "commander";
import type { IptablesChange } from "./commit/iptables-rule-set.ts";
import { openRuleSets } from "./commit/open-rule-sets.ts";
import { removeRules } from "./commit/remove-rules.ts";
import { ChainNames, prefixOf } from "./render/chains.ts";

/** Options that only this backend has. Options that also exist in kube-proxy have the same names there. */
const iptablesOptions: readonly OptionSpec[] = [
  {
    flags: "--iptables-masquerade-bit <bit>",
    isExpert: true,
    description: "bit of the packet mark for packets that get the node's address as source; may be kube-proxy's",
    default: 14,
    parse: parseWholeNumber("--iptables-masquerade-bit", 0, 31),
  },
  {
    flags: "--iptables-localhost-nodeports <true|false>",
    description: "serve node ports on 127.0.0.1 too, and set route_localnet for it; IPv4 only",
    default: true,
    parse: trueOrFalse,
  },
  {
    flags: "--iptables-variant <variant>",
    description:
      "variant of iptables: nft, legacy, or auto: that of kubelet, else the one with more rules, else `iptables`",
    default: "auto",
    parse: oneOf(["auto", "nft", "legacy"]),
  },
];

/** The backend that serves Services with iptables rules, as kube-proxy's iptables mode does. */
export const iptablesBackend = proxyBackend({
  name: "iptables",
  proxyMode: "iptables",
  healthPort: 10_270,
  description: "serve Services with iptables rules on this node, as kube-proxy does, beside kube-proxy or in its place",
  options: iptablesOptions,
  examples: `
Examples:
  # serve this node, with the options of kube-proxy
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print the transactions that would be committed, and change nothing
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the rules? exit code 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # remove all rules that kpng-iptables ever installed
  COMMAND --cleanup

Rules stay when the program ends, so traffic goes on. The next start changes only rules that differ.
`,
  makeProxy,
});

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<IptablesChange> {
  const prefix = prefixOf(serviceProxyName);
  const masqueradeMark = 2 ** Number(options.iptablesMasqueradeBit ?? 14);
  const settings = { names: new ChainNames(prefix), masqueradeMark };
  const { iptablesVariant } = options;
  const variant = iptablesVariant === "nft" || iptablesVariant === "legacy" ? iptablesVariant : "auto";
  return {
    wantsLoopbackNodePorts: options.iptablesLocalhostNodeports !== false,
    openRuleSets: (host) => openRuleSets(settings, variant, host),
    cleanUp: ({ sysctls, log }) => removeRules({ prefix, sysctls, log }),
  };
}

function trueOrFalse(text: string): boolean {
  if (text === "true" || text === "false") return text === "true";
  throw new InvalidArgumentError("must be true or false");
}
