import type { ChainNames, FixedChain } from "./chain-names.ts";
import type { RenderOptions } from "./render-options.ts";
import { comment, rule } from "./rule.ts";
import { type ChainId, chainId, type Table } from "./table.ts";

/** Built-in chains that contain our jumps. */
export const builtInChains: Readonly<Record<Table, readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "OUTPUT", "POSTROUTING"],
};

/**
 * Renders our jumps at the beginning of each built-in chain, in the order in which packets meet them. Source:
 * kube-proxy `iptables/proxier.go`, iptablesJumpChains. The README gives the reason for each.
 *
 * `IptablesRuleSet` and `diffFrame` compare them with the installed jumps, by `diffJumps`. Separate from
 * `renderFixedChains`, because built-in chains also have rules of other programs and are never rewritten as a whole.
 */
export function renderJumps(options: RenderOptions): ReadonlyMap<ChainId, readonly string[]> {
  const { names } = options;
  const isNew = "-m conntrack --ctstate NEW";
  const firewall = jump(names, isNew, "kpng load balancer firewall", "PROXY-FIREWALL");
  const services = jump(names, isNew, "kpng service portals", "SERVICES");
  const external = jump(names, isNew, "kpng externally-visible service portals", "EXTERNAL-SERVICES");
  const portals = jump(names, "", "kpng service portals", "SERVICES");
  const localnet = options.localnetGuard === "none" ? [] : [jump(names, "", "kpng localnet firewall", "LOCALNET")];
  return new Map([
    [
      chainId("filter", "INPUT"),
      [...localnet, firewall, jump(names, "", "kpng health check service ports", "NODEPORTS"), external],
    ],
    [chainId("filter", "FORWARD"), [firewall, jump(names, "", "kpng forwarding rules", "FORWARD"), services, external]],
    [chainId("filter", "OUTPUT"), [...localnet, firewall, services]],
    [chainId("nat", "PREROUTING"), [portals]],
    [chainId("nat", "OUTPUT"), [portals]],
    [chainId("nat", "POSTROUTING"), [jump(names, "", "kpng postrouting rules", "POSTROUTING")]],
  ]);
}

function jump(names: ChainNames, match: string, note: string, target: FixedChain): string {
  return rule(match, comment(note), `-j ${names.fixed(target)}`);
}
