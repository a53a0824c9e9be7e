import {
  ProtocolSchema,
  type Service,
  ServiceSchema,
  type TrafficPolicy,
  TrafficPolicySchema,
} from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { changeTable } from "./changes.ts";
import { type InspectClient, type InspectCommand, readPages } from "./client.ts";
import { endpointTable } from "./endpoints.ts";
import { severityOf } from "./findings.ts";
import { labelSelectorOption, listCommand, namespaceOptions, notFound, parseServiceName, splitName } from "./list.ts";
import type { TableSpec } from "./print/text.ts";
import { enumWord, formatLabels, formatList, formatMs, formatRow, formatSection, terminalText } from "./print/text.ts";

export const serviceTable: TableSpec<typeof ServiceSchema> = {
  schema: ServiceSchema,
  nameOf: ({ namespace, name }) => `service/${namespace}/${name}`,
  columns: [
    { title: "NAMESPACE", cell: ({ namespace }) => namespace },
    { title: "NAME", cell: ({ name }) => name },
    { title: "TYPE", cell: ({ type, isHeadless }) => (isHeadless ? "headless" : type) },
    { title: "CLUSTER-IP", cell: ({ clusterIps }) => clusterIps.join(",") },
    {
      title: "EXTERNAL-IP",
      cell: ({ externalIps, loadBalancerIps }) => [...externalIps, ...loadBalancerIps].join(","),
    },
    { title: "PORTS", cell: formatPorts },
    { title: "READY", cell: formatReady },
    { title: "POLICY", cell: formatPolicies, isWide: true },
    { title: "AFFINITY", cell: ({ affinitySeconds: s }) => (s === 0 ? "" : formatMs(s * 1_000)), isWide: true },
    { title: "SOURCE-RANGES", cell: ({ sourceRanges }) => sourceRanges.join(","), isWide: true },
    { title: "HEALTH-PORT", cell: ({ healthCheckNodePort: port }) => (port === 0 ? "" : String(port)), isWide: true },
    { title: "PROXY", cell: ({ serviceProxyName }) => serviceProxyName, isWide: true },
    { title: "LABELS", cell: ({ labels }) => formatLabels(labels), isWide: true },
  ],
};

/** Formats ports as kubectl does: `80:30080/TCP`. */
function formatPorts({ ports }: Service): string {
  return ports
    .map(({ port, nodePort, protocol }) => {
      const node = nodePort === 0 ? "" : `:${nodePort}`;
      return `${port}${node}/${enumWord(ProtocolSchema, protocol)}`;
    })
    .join(",");
}

/** Formats the number of ready endpoints and of all endpoints: `2/3`. */
function formatReady({ endpoints }: Service): string {
  const { ready = 0, terminating = 0, notReady = 0 } = endpoints ?? {};
  return `${ready}/${ready + terminating + notReady}`;
}

function formatPolicies(service: Service): string {
  const formatPolicy = (policy: TrafficPolicy): string => enumWord(TrafficPolicySchema, policy);
  return `internal ${formatPolicy(service.internalTrafficPolicy)}, external ${formatPolicy(service.externalTrafficPolicy)}`;
}

export const describeServiceCommand: InspectCommand = {
  name: "service",
  aliases: ["services", "svc"],
  description: "a Service with its endpoints, its last changes and what is wrong with it",
  argument: "<name>",
  parseArgument: parseServiceName,
  options: namespaceOptions,
  examples: `
Without a namespace, all Services of the name are described.

Examples:
  COMMAND default/web
  COMMAND web -n default
`,
  run: async ({ client, words: [argument = ""], options }) => {
    const filter = splitName(argument, options);
    const services = await readPages(client.listServices, filter, (page) => page.services);
    if (services.length === 0) throw notFound("Service", filter.name, filter);
    const texts = await Promise.all(services.map((service) => describe(client, service)));
    process.stdout.write(terminalText(texts.join("\n\n")));
  },
};

async function describe(client: InspectClient, service: Service): Promise<string> {
  const { namespace, name } = service;
  const { changes } = await client.listChanges({ namespace, service: name, pageSize: 5 });
  const endpoints = await readPages(client.listEndpoints, { namespace, service: name }, (page) => page.endpoints);
  const { findings } = await client.listFindings({ object: `service/${namespace}/${name}` });
  const lines = findings.map((finding) => `${severityOf(finding)}: ${finding.text} → ${finding.remedy}`);
  return [
    formatRow(serviceTable.columns, service),
    formatSection("Endpoints", endpointTable.columns, endpoints),
    formatSection("Last changes", changeTable.columns, changes),
    formatList("Findings", lines),
  ].join("");
}

export const servicesCommand = listCommand({
  name: "services",
  aliases: ["service", "svc"],
  description: "Services, with the number of their ready endpoints",
  argument: "[name...]",
  parseArgument: parseServiceName,
  options: [...namespaceOptions, labelSelectorOption],
  examples: `
Examples:
  COMMAND -n default -l app=web
  COMMAND default/web default/db -o yaml
`,
  noun: "Service",
  table: serviceTable,
  filterOf: splitName,
  list: (client, request) => client.listServices(request),
  watch: (client, filter, call) => client.watchServices(filter, call),
  rowsOf: ({ services }) => services,
  keyOf: ({ namespace, name }) => `${namespace}/${name}`,
});
