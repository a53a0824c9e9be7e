import type { Endpoint } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { parseNodeName } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { terminalText } from "../print/terminal-text.ts";
import {
  namespaceOption,
  parseFilter,
  readProxyName,
  serviceFilterOption,
  splitService,
} from "../query/filter-options.ts";
import { type InspectClient, inspectClient, pageSize, readNodeEndpoints, readPages } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { decisionTable } from "../tables/decision-table.ts";
import { formatPorts, formatState } from "../tables/endpoint-table.ts";
import { formatFields, formatSection } from "./fields.ts";

/**
 * `kpng describe endpoint`: prints all that a watcher knows about an endpoint, once for each EndpointSlice that has it,
 * and how one node uses it. `makeInspect` and `makeInspectSource` add it. Separate from `kpng get view`, which lists
 * the use of all endpoints by a node.
 */
export const describeEndpointCommand: InspectCommand = {
  name: "endpoint",
  aliases: ["endpoints", "ep"],
  description: "an endpoint with its state and its hints, and how a node uses it",
  argument: "<pod-or-address>",
  parseArgument: parseFilter,
  options: [
    namespaceOption,
    serviceFilterOption,
    {
      flags: "--node <name>",
      description: "node whose use of the endpoint is shown (default: the one that it runs on)",
      default: "",
      parse: parseNodeName,
    },
  ],
  examples: `
Examples:
  COMMAND web-2 -n default
  COMMAND 10.1.0.2 --node n1
`,
  run: async (transport, [endpoint = ""], options) => {
    const client = inspectClient(transport);
    const filter = { ...splitService(options), endpoint };
    const found = await readPages(
      (pageToken) => client.listEndpoints({ ...filter, pageSize, pageToken }),
      (page) => page.endpoints,
    );
    if (found.length === 0) throw new ProcessError("REQUEST_FAILED", `endpoint "${endpoint}" not found`);
    const texts: string[] = [];
    for (const one of found) {
      const nodeName = String(options.node) || one.node;
      texts.push(
        formatFields(fieldsOf(one)) +
          (await formatUse(client, one, { nodeName, endpoint, serviceProxyName: readProxyName(options) })),
      );
    }
    process.stdout.write(terminalText(texts.join("\n\n")));
  },
};

/** Formats how a node uses each port of an endpoint; "" if no node is known to ask. */
async function formatUse(
  client: InspectClient,
  { namespace, service, slice, addresses }: Endpoint,
  request: { readonly nodeName: string; readonly endpoint: string; readonly serviceProxyName: string },
): Promise<string> {
  if (request.nodeName === "") return "";
  const decisions = await readNodeEndpoints(client, { ...request, namespace, service });
  const own = decisions.filter((decision) => decision.slice === slice && addresses.includes(decision.address));
  return formatSection(`Use by node ${request.nodeName}`, decisionTable, own);
}

function fieldsOf(endpoint: Endpoint): [string, string][] {
  return [
    ["Addresses", endpoint.addresses.join(", ")],
    ["Pod", endpoint.pod],
    ["Service", `${endpoint.namespace}/${endpoint.service}`],
    ["Slice", endpoint.slice],
    ["Ports", formatPorts(endpoint)],
    ["State", formatState(endpoint)],
    ["Node", endpoint.node],
    ["Zone", endpoint.zone],
    ["Hints for zones", endpoint.hintedZones.join(", ")],
    ["Hints for nodes", endpoint.hintedNodes.join(", ")],
  ];
}
