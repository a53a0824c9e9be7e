import type { Service, ServicePort } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { TrafficPolicySchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { findFindings } from "../analyze/find-findings.ts";
import { readWatcherState, type WatcherState } from "../analyze/read-state.ts";
import { formatEnum, formatLabels, formatProtocol } from "../print/format.ts";
import { terminalText } from "../print/terminal-text.ts";
import { namespaceOption, parseServiceName, splitName } from "../query/filter-options.ts";
import { type InspectClient, inspectClient, pageSize, readPages } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { changeTable } from "../tables/change-table.ts";
import { endpointTable } from "../tables/endpoint-table.ts";
import { formatFields, formatList, formatSection } from "./fields.ts";

/**
 * `kpng describe service`: prints all that a watcher knows about a Service: its fields, its endpoints, its last changes
 * and what `kpng analyze` finds. `makeInspect` and `makeInspectSource` add it. Separate from `kpng get services`, which
 * prints a row for each Service.
 */
export const describeServiceCommand: InspectCommand = {
  name: "service",
  aliases: ["services", "svc"],
  description: "a Service with its endpoints, its last changes and what is wrong with it",
  argument: "<name>",
  parseArgument: parseServiceName,
  options: [namespaceOption],
  examples: `
Without a namespace, all Services of the name are described.

Examples:
  COMMAND default/web
  COMMAND web -n default
`,
  run: async (transport, [argument = ""], options) => {
    const client = inspectClient(transport);
    const filter = splitName(argument, options);
    const services = await readPages(
      (pageToken) => client.listServices({ ...filter, pageSize, pageToken }),
      (page) => page.services,
    );
    if (services.length === 0) {
      const place = filter.namespace === "" ? "" : ` in namespace "${filter.namespace}"`;
      throw new ProcessError("REQUEST_FAILED", `Service "${filter.name}" not found${place}`);
    }
    const state = await readWatcherState(client);
    const texts = await Promise.all(services.map((service) => describe(client, service, state)));
    process.stdout.write(terminalText(texts.join("\n\n")));
  },
};

const changeCount = 5;

async function describe(client: InspectClient, service: Service, state: WatcherState): Promise<string> {
  const { namespace, name } = service;
  const { changes } = await client.listChanges({ namespace, service: name, pageSize: changeCount });
  const endpoints = state.endpoints.filter((one) => one.namespace === namespace && one.service === name);
  const subject = `service/${namespace}/${name}`;
  // Also findings about another Service that has the same address.
  const findings = findFindings(state, { hasNodes: false }).filter(
    (finding) => finding.subject === subject || finding.text.split(/[ ,]+/).includes(subject),
  );
  return [
    formatFields(fieldsOf(service)),
    formatSection("Endpoints", endpointTable, endpoints),
    formatSection("Last changes", changeTable, changes),
    formatList(
      "Findings",
      findings.map(({ severity, text, remedy }) => `${severity}: ${text} → ${remedy}`),
    ),
  ].join("");
}

function fieldsOf(service: Service): [string, string][] {
  const { ready = 0, terminating = 0, notReady = 0 } = service.endpoints ?? {};
  return [
    ["Name", service.name],
    ["Namespace", service.namespace],
    ["Labels", formatLabels(service.labels)],
    ["Type", service.isHeadless ? `${service.type}, headless` : service.type],
    ["Cluster IPs", service.clusterIps.join(", ")],
    ["External IPs", service.externalIps.join(", ")],
    ["Load-balancer IPs", [...service.loadBalancerIps, ...service.proxyModeLoadBalancerIps].join(", ")],
    ["Source ranges", service.sourceRanges.join(", ")],
    ["Ports", service.ports.map(formatPort).join(", ")],
    ["Internal policy", formatEnum(TrafficPolicySchema, service.internalTrafficPolicy)],
    ["External policy", formatEnum(TrafficPolicySchema, service.externalTrafficPolicy)],
    ["Session affinity", service.affinitySeconds === 0 ? "" : `ClientIP, ${service.affinitySeconds} s`],
    ["Health-check port", service.healthCheckNodePort === 0 ? "" : String(service.healthCheckNodePort)],
    ["Proxy name", service.serviceProxyName],
    ["Endpoint count", `${ready} ready, ${terminating} terminating, ${notReady} not ready`],
  ];
}

function formatPort({ name, port, protocol, nodePort, targetPort }: ServicePort): string {
  const target = targetPort === "" ? "" : ` → ${targetPort}`;
  const node = nodePort === 0 ? "" : ` (node port ${nodePort})`;
  return `${name === "" ? "" : `${name} `}${port}/${formatProtocol(protocol)}${target}${node}`;
}
