import { addressBucket, nodePortBucket, wholeList } from "./dispatch.ts";
import type { RenderOptions } from "./render-options.ts";
import type { ListedRule, PortPlan } from "./render-service.ts";
import { comment, host, protocolName, reject, rule } from "./rule.ts";
import type { ServicePortFacts } from "./service-port.ts";
import { chainId } from "./table.ts";

/**
 * Renders the rules that lead from a Service's addresses to its chains, and those that refuse or drop what no chain takes.
 *
 * Refused: no usable endpoint exists in the cluster. Dropped: policy Local, and endpoints exist on other nodes only, to
 * which a load balancer should have sent it. nat cannot do either, so such a packet passes nat and meets filter.
 */
export function renderFrontends(port: ServicePortFacts, plan: PortPlan, options: RenderOptions): readonly ListedRule[] {
  const { names, family } = options;
  const listed: ListedRule[] = [];
  const protocol = protocolName(port.protocol);
  const service = (address: string, note: string, target: string): string =>
    rule(
      `-d ${host(family, address)}`,
      `-p ${protocol}`,
      comment(`${port.name} ${note}`),
      `-m ${protocol} --dport ${port.port}`,
      `-j ${target}`,
    );
  const serve = (address: string, note: string, chain: string): void => {
    listed.push({ list: addressBucket("SERVICES", names, family, address), rule: service(address, note, chain) });
  };
  const filterList = (name: "SERVICES" | "EXTERNAL-SERVICES" | "PROXY-FIREWALL") =>
    wholeList(chainId("filter", names.fixed(name)));
  const verdict = port.hasEndpoints ? "DROP" : reject(family);
  const why = port.hasEndpoints ? "has no local endpoints" : "has no endpoints";

  for (const address of port.clusterIPs) {
    if (plan.internalChain !== undefined) serve(address, "cluster IP", plan.internalChain);
    else listed.push({ list: filterList("SERVICES"), rule: service(address, why, verdict) });
  }
  const external = [
    ...port.externalIPs.map((address) => ({ address, note: "external IP", sourceRanges: undefined })),
    ...port.loadBalancerIPs.map((ip) => ({ ...ip, note: "loadbalancer IP" })),
  ];
  for (const { address, note, sourceRanges } of external) {
    if (plan.externalChain !== undefined) {
      serve(address, note, sourceRanges === undefined ? plan.externalChain : plan.firewallChain);
      if (sourceRanges !== undefined) {
        const barred = service(address, `traffic not accepted by ${plan.firewallChain}`, "DROP");
        listed.push({ list: filterList("PROXY-FIREWALL"), rule: barred });
      }
    }
    if (plan.outsideChain === undefined) {
      listed.push({ list: filterList("EXTERNAL-SERVICES"), rule: service(address, why, verdict) });
    }
  }
  if (port.nodePort !== 0) {
    const dport = `-m ${protocol} --dport ${port.nodePort}`;
    if (plan.externalChain !== undefined) {
      // Source ranges do not hold for node ports: kube-proxy's behaviour, which clusters rely on.
      const jump = rule(`-p ${protocol}`, comment(port.name), dport, `-j ${plan.externalChain}`);
      listed.push({ list: nodePortBucket(names, port.protocol, port.nodePort), rule: jump });
    }
    if (plan.outsideChain === undefined) {
      const local = "-m addrtype --dst-type LOCAL";
      const refuse = rule(`-p ${protocol}`, comment(`${port.name} ${why}`), local, dport, `-j ${verdict}`);
      listed.push({ list: filterList("EXTERNAL-SERVICES"), rule: refuse });
    }
  }
  return listed;
}
