import { addressAndPort } from "@kpng/model/address.ts";
import { type Endpoint, EndpointSchema, Protocol, ProtocolSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { type EndpointDecision, EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { parseNodeName } from "@kpng/process/options.ts";
import { type InspectCommand, readPages, warnUnknownNode } from "./client.ts";
import {
  listCommand,
  namespaceOptions,
  nodeFilterOption,
  parseFilter,
  proxyNameOption,
  readProxyName,
  serviceFilterOption,
  splitService,
  warnEmpty,
} from "./list.ts";
import { outputOptions, printRows, readOutputOptions } from "./print/output.ts";
import { enumWord, type TableSpec } from "./print/text.ts";

export const endpointTable: TableSpec<typeof EndpointSchema> = {
  schema: EndpointSchema,
  columns: [
    { title: "NAMESPACE", cell: ({ namespace }) => namespace },
    { title: "SERVICE", cell: ({ service }) => service },
    { title: "ADDRESS", cell: ({ addresses }) => addresses.join(",") },
    { title: "PORTS", cell: formatPorts },
    { title: "POD", cell: ({ pod }) => pod },
    { title: "NODE", cell: ({ node }) => node },
    { title: "STATE", cell: formatState },
    { title: "ZONE", cell: ({ zone }) => zone, isWide: true },
    { title: "FOR-ZONES", cell: ({ hintedZones }) => hintedZones.join(","), isWide: true },
    { title: "FOR-NODES", cell: ({ hintedNodes }) => hintedNodes.join(","), isWide: true },
    { title: "SLICE", cell: ({ slice }) => slice, isWide: true },
  ],
};

/** Formats ports as `http=8080/TCP`, or `8080/TCP` for a port without a name. */
function formatPorts({ ports }: Endpoint): string {
  return ports
    .map(({ name, port, protocol }) => {
      const number = protocol === Protocol.UNSPECIFIED ? String(port) : `${port}/${enumWord(ProtocolSchema, protocol)}`;
      return name === "" ? number : `${name}=${number}`;
    })
    .join(",");
}

/** *Shape:* "ready", "ready, terminating" (publishNotReadyAddresses), "terminating, serving", "terminating", "not ready". */
function formatState({ isReady, isServing, isTerminating }: Endpoint): string {
  if (isReady) return isTerminating ? "ready, terminating" : "ready";
  if (isTerminating) return isServing ? "terminating, serving" : "terminating";
  return "not ready";
}

/** Columns for endpoints as one node uses them, with the reason why the node does or does not use each endpoint. */
export const decisionTable: TableSpec<typeof EndpointDecisionSchema> = {
  schema: EndpointDecisionSchema,
  columns: [
    { title: "NAMESPACE", cell: ({ namespace }) => namespace },
    { title: "SERVICE", cell: ({ service }) => service },
    { title: "PORT", cell: formatPort },
    { title: "ENDPOINT", cell: ({ address, port }) => (port === 0 ? address : addressAndPort(address, port)) },
    { title: "POD", cell: ({ pod }) => pod },
    { title: "NODE", cell: ({ node }) => node },
    { title: "REASON", cell: ({ text }) => text },
    // The watcher sends it to the node, which may use it only for old UDP flows.
    { title: "SENT", cell: ({ isTold }) => (isTold ? "yes" : "no"), isWide: true },
    { title: "SETS", cell: formatSets, isWide: true },
    { title: "SLICE", cell: ({ slice }) => slice, isWide: true },
  ],
};

function formatPort({ portName, protocol }: EndpointDecision): string {
  return [portName, enumWord(ProtocolSchema, protocol)].filter((part) => part !== "").join("/");
}

function formatSets({ isInClusterSet, isInLocalSet }: EndpointDecision): string {
  return [isInClusterSet ? "cluster" : "", isInLocalSet ? "local" : ""].filter((set) => set !== "").join(",");
}

export const endpointsCommand = listCommand({
  name: "endpoints",
  aliases: ["endpoint", "ep", "endpointslices", "endpointslice"],
  description: "endpoints of EndpointSlices",
  argument: "[pod-or-address...]",
  parseArgument: parseFilter,
  options: [...namespaceOptions, serviceFilterOption, nodeFilterOption],
  examples: `
Examples:
  COMMAND -n default --service web
  COMMAND 10.1.0.7 -o wide
  COMMAND --node n1 --watch
`,
  noun: "endpoint",
  table: endpointTable,
  filterOf: (endpoint = "", options) => ({ ...splitService(options), node: String(options.node), endpoint }),
  list: (client, request) => client.listEndpoints(request),
  watch: (client, filter, call) => client.watchEndpoints(filter, call),
  rowsOf: ({ endpoints }) => endpoints,
  keyOf: ({ namespace, service, slice, addresses: [first = ""] }) => `${namespace}/${service}/${slice}/${first}`,
});

/** `kpng get view`: the endpoints that a watcher sends to a node, and those that the node does not use. */
export const viewCommand: InspectCommand = {
  name: "view",
  description: "every endpoint as a node uses it, with the reason",
  argument: "<node>",
  parseArgument: parseNodeName,
  options: [...namespaceOptions, serviceFilterOption, ...outputOptions],
  remoteOptions: [proxyNameOption],
  examples: `
Examples:
  COMMAND n1 -n default

  # why does n1 not use a pod of default/web?
  COMMAND n1 --service default/web
`,
  run: async ({ client, words: [nodeName = ""], options }) => {
    const filter = { ...splitService(options), nodeName, serviceProxyName: readProxyName(options) };
    let isNodeKnown = true;
    const rows = await readPages(client.listNodeEndpoints, filter, (page) => {
      isNodeKnown = page.isNodeKnown;
      return page.decisions;
    });
    if (!isNodeKnown) warnUnknownNode(nodeName);
    printRows(decisionTable, rows, await readOutputOptions(options));
    if (rows.length === 0) warnEmpty("endpoint");
  },
};
