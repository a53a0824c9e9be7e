import type { Frontend } from "@kpng/service-plan/service-plan.ts";
import type { RenderOptions } from "./render-options.ts";
import { comment, host, rule } from "./rule.ts";

/**
 * Renders the chain FW of a Service port, which lets only clients in the source ranges of a load-balancer IP pass.
 * `renderService` calls it for ports with source ranges. Packets that reach the end of the chain get no endpoint, and
 * the chain PROXY-FIREWALL of table filter drops them. Accepted packets go on to the chain that `renderExternalChain`
 * renders. Each kind of chain has a file of its own.
 *
 * `filtered` are the port's frontends with source ranges, at least one.
 */
export function renderFirewallChain(
  name: string,
  filtered: readonly Frontend[],
  externalChain: string,
  { names, node: { family } }: RenderOptions,
): readonly string[] {
  const note = comment(`${name} loadbalancer IP`);
  // Kubernetes has one list of ranges for all addresses; a state file may have one for each.
  const isForAll = filtered.every(({ sources }) => sources === filtered[0]?.sources);
  const allowed = (isForAll ? filtered.slice(0, 1) : filtered).flatMap(({ address = "", sources }) => {
    const destination = isForAll ? "" : `-d ${host(family, address)}`;
    const own = sources?.ownAddresses.map((each) => host(family, each)) ?? [];
    return [...(sources?.ranges ?? []), ...own].map((source) =>
      rule(`-s ${source}`, destination, note, `-j ${externalChain}`),
    );
  });
  return [...allowed, comment(`other traffic to ${name} will be dropped by ${names.fixed("PROXY-FIREWALL")}`)];
}
