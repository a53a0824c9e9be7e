import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { parseNodeName } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { formatAge, formatEnum, formatLabels } from "../print/format.ts";
import { terminalText } from "../print/terminal-text.ts";
import { inspectClient, pageSize, readPages } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { endpointTable } from "../tables/endpoint-table.ts";
import { subscriberTable } from "../tables/subscriber-table.ts";
import { formatFields, formatSection } from "./fields.ts";

/**
 * `kpng describe node`: prints all that a watcher knows about a node: its fields, the streams of its proxies, and the
 * endpoints that run on it. `makeInspect` adds it. Separate from `kpng get nodes`, which prints a row for each node.
 * The rules are known only on the node itself: `kpng get rules` there prints them.
 */
export const describeNodeCommand: InspectCommand = {
  name: "node",
  aliases: ["nodes", "no"],
  description: "a node with the streams of its proxies and the endpoints that run on it",
  argument: "<name>",
  parseArgument: parseNodeName,
  options: [],
  examples: `
Examples:
  COMMAND n1
`,
  run: async (transport, [name = ""]) => {
    const client = inspectClient(transport);
    const {
      nodes: [node],
    } = await client.listNodes({ name });
    if (node === undefined) throw new ProcessError("REQUEST_FAILED", `node "${name}" not found`);
    const subscribers = await readPages(
      (pageToken) => client.listSubscribers({ node: name, pageSize, pageToken }),
      (page) => page.subscribers,
    );
    const endpoints = await readPages(
      (pageToken) => client.listEndpoints({ node: name, pageSize, pageToken }),
      (page) => page.endpoints,
    );
    const text = [
      formatFields(fieldsOf(node)),
      formatSection("Streams", subscriberTable, subscribers),
      formatSection("Endpoints", endpointTable, endpoints),
    ];
    process.stdout.write(terminalText(text.join("")));
  },
};

function fieldsOf(node: Node): [string, string][] {
  const since = node.unappliedSince === undefined ? "" : `, a change waits for ${formatAge(node.unappliedSince)}`;
  return [
    ["Name", node.isKnown ? node.name : `${node.name} (the cluster has no such Node)`],
    ["Zone", node.zone],
    ["Labels", formatLabels(node.labels)],
    ["Addresses", node.addresses.join(", ")],
    ["Pod CIDRs", node.podCidrs.join(", ")],
    ["Gets traffic of load balancers", node.isEligible ? "yes" : "no: it is being deleted"],
    ["State", `${formatEnum(ApplyStateSchema, node.state)}${since}`],
    ["Applied revision", node.appliedRevision === 0n ? "" : String(node.appliedRevision)],
    ["Programs", node.programs.join(", ")],
    ["Last error", node.error],
  ];
}
