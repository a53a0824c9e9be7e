import type { Frontend, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import { addressBucket, nodePortBucket, wholeList } from "./dispatch.ts";
import type { PortChains } from "./port-chains.ts";
import type { RenderOptions } from "./render-options.ts";
import type { ListedRule } from "./rendered-service.ts";
import { comment, host, protocolName, reject, rule } from "./rule.ts";
import { chainId } from "./table.ts";

/**
 * Renders the rules that lead from a Service port's frontends to its chains, and the rules that refuse or drop the
 * packets that no chain takes. Table nat cannot do either, so such a packet passes nat and is stopped in filter.
 *
 * `renderService` calls it for each port. Separate from the renderers of the port's own chains: this file has only
 * rules in chains that all Services share.
 */
export function renderFrontends(
  port: ServicePortPlan,
  chains: PortChains,
  options: RenderOptions,
): readonly ListedRule[] {
  return port.frontends.flatMap((frontend) => {
    if (frontend.kind === "clusterIP") return renderClusterIP(port, frontend, chains, options);
    return [
      ...(chains.external === undefined ? [] : renderServed(port, frontend, chains.external, chains.firewall, options)),
      ...renderVerdict(port, frontend, options),
    ];
  });
}

/** Rules of a cluster IP: to the chain of its endpoints, or to refuse or drop packets. */
function renderClusterIP(
  port: ServicePortPlan,
  frontend: Frontend,
  { sets }: PortChains,
  options: RenderOptions,
): readonly ListedRule[] {
  const { address = "", routes } = frontend;
  const { names, node } = options;
  if (routes.outside.kind !== "balance") return renderVerdict(port, frontend, options);
  const list = addressBucket("SERVICES", names, node.family, address);
  return [{ list, rule: addressRule(port, frontend, "cluster IP", `${sets.get(routes.outside.set)}`, options) }];
}

const notes = { externalIP: "external IP", loadBalancerIP: "loadbalancer IP" } as const;

/** Rules of a frontend from which some sender gets an endpoint. */
function renderServed(
  port: ServicePortPlan,
  frontend: Frontend,
  externalChain: string,
  firewallChain: string,
  options: RenderOptions,
): readonly ListedRule[] {
  const { kind, address, protocol, port: number, sources } = frontend;
  const { names, node } = options;
  if (kind === "clusterIP" || kind === "nodePort" || address === undefined) {
    const match = `-m ${protocolName(protocol)} --dport ${number}`;
    const jump = rule(`-p ${protocolName(protocol)}`, comment(port.name), match, `-j ${externalChain}`);
    return [{ list: nodePortBucket(names, protocol, number), rule: jump }];
  }
  const list = addressBucket("SERVICES", names, node.family, address);
  if (sources === undefined) {
    return [{ list, rule: addressRule(port, frontend, notes[kind], externalChain, options) }];
  }
  const note = `traffic not accepted by ${firewallChain}`;
  return [
    { list, rule: addressRule(port, frontend, notes[kind], firewallChain, options) },
    { list: filterList("PROXY-FIREWALL", options), rule: addressRule(port, frontend, note, "DROP", options) },
  ];
}

/** The rule that refuses or drops packets of outside clients; none if they get an endpoint. */
function renderVerdict(port: ServicePortPlan, frontend: Frontend, options: RenderOptions): readonly ListedRule[] {
  const { kind, protocol, port: number, routes } = frontend;
  if (routes.outside.kind === "balance") return [];
  const isRefused = routes.outside.kind === "refuse";
  const verdict = isRefused ? reject(options.node.family) : "DROP";
  const note = isRefused ? "has no endpoints" : "has no local endpoints";
  const list = filterList(kind === "clusterIP" ? "SERVICES" : "EXTERNAL-SERVICES", options);
  if (kind !== "nodePort") return [{ list, rule: addressRule(port, frontend, note, verdict, options) }];
  const match = [`-m addrtype --dst-type LOCAL`, `-m ${protocolName(protocol)} --dport ${number}`];
  return [
    { list, rule: rule(`-p ${protocolName(protocol)}`, comment(`${port.name} ${note}`), ...match, `-j ${verdict}`) },
  ];
}

function addressRule(
  { name }: ServicePortPlan,
  { address = "", protocol, port }: Frontend,
  note: string,
  target: string,
  { node }: RenderOptions,
): string {
  return rule(
    `-d ${host(node.family, address)}`,
    `-p ${protocolName(protocol)}`,
    comment(`${name} ${note}`),
    `-m ${protocolName(protocol)} --dport ${port}`,
    `-j ${target}`,
  );
}

function filterList(name: "SERVICES" | "EXTERNAL-SERVICES" | "PROXY-FIREWALL", { names }: RenderOptions) {
  return wholeList(chainId("filter", names.fixed(name)));
}
