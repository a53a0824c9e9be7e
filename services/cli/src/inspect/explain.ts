import { toJson } from "@bufbuild/protobuf";
import { Protocol } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { SourceKind, StageSchema, VerdictSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { type ExplainResponse, ExplainResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type OptionSpec, parseNodeName, parseSomeText, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import { formatEnum, formatProtocol } from "./print/format.ts";
import { type OutputOptions, outputOptions, printRows, readOutputOptions } from "./print/output.ts";
import { formatTable } from "./print/table.ts";
import { readProxyName } from "./query/filter-options.ts";
import { inspectClient, unknownNode } from "./query/inspect-client.ts";
import type { InspectCommand } from "./query/inspect-command.ts";
import { decisionTable } from "./tables/decision-table.ts";

const sourceWords: ReadonlyMap<string, SourceKind> = new Map([
  ["pod", SourceKind.POD],
  ["node", SourceKind.NODE],
  ["outside", SourceKind.OUTSIDE],
]);

const protocolWords: ReadonlyMap<string, Protocol> = new Map([
  ["tcp", Protocol.TCP],
  ["udp", Protocol.UDP],
  ["sctp", Protocol.SCTP],
]);

const settingOptions: readonly OptionSpec[] = [
  repeatable("--cluster-cidr <cidrs>", "addresses of all pods, as the node's proxy is told (default: of all Nodes)"),
  { flags: "--masquerade-all", description: "the node's proxy masquerades all traffic to cluster IPs" },
  repeatable("--nodeport-addresses <cidrs>", "addresses on which the node's proxy serves node ports (default: all)"),
];

export const explainCommand: InspectCommand = {
  name: "explain",
  description: "what becomes of a packet on a node, and why",
  argument: "<destination>",
  parseArgument: parseSomeText,
  options: [
    { flags: "--node <name>", description: "the node that the packet reaches", parse: parseNodeName },
    {
      flags: "--from <sender>",
      description: "its address; or pod (of the node), node (itself) or outside, for any of the kind",
      default: "pod",
      parse: parseSomeText,
    },
    {
      flags: "--protocol <protocol>",
      description: "tcp, udp or sctp (default: the port's own)",
      parse: (text) => {
        if (protocolWords.has(text.toLowerCase())) return text.toLowerCase();
        throw new InvalidArgumentError(`the protocol is one of ${[...protocolWords.keys()].join(", ")}`);
      },
    },
    ...settingOptions,
    ...outputOptions,
  ],
  examples: `
The destination is address:port, [IPv6]:port, or namespace/name of a Service with or without a port. What is said is what
should be, by the rules of kube-proxy's iptables mode, once the node has applied what the watcher knows.

Examples:
  COMMAND --node n1 default/web
  COMMAND --node n1 --from 203.0.113.7 198.51.100.10:443
  COMMAND --node n1 --from outside 192.0.2.1:30080 -o json
`,
  run: async (transport, word = "", options) => {
    const client = inspectClient(transport);
    if (options.node === undefined)
      throw new ProcessError("BAD_OPTION", "--node is missing: which node does it reach?");
    const from = String(options.from);
    const sourceKind = sourceWords.get(from);
    const response = await client.explain({
      ...readDestination(word),
      nodeName: String(options.node),
      serviceProxyName: readProxyName(options),
      sourceAddress: sourceKind === undefined ? from : "",
      sourceKind: sourceKind ?? SourceKind.UNSPECIFIED,
      protocol: protocolWords.get(String(options.protocol)) ?? Protocol.UNSPECIFIED,
      settings: {
        clusterCidrs: [...(options.clusterCidr as readonly string[])],
        masqueradeAll: options.masqueradeAll === true,
        nodePortAddresses: [...(options.nodeportAddresses as readonly string[])],
      },
    });
    if (!response.isNodeKnown) process.stderr.write(`${unknownNode(String(options.node))}\n`);
    printExplained(response, from, readOutputOptions(options));
  },
};

/** Errors: BAD_OPTION. */
function readDestination(word: string): { readonly destination: string; readonly port: number } {
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(word) ?? [];
  const destination = bracketed ?? plain ?? word;
  if (port === undefined && !destination.includes("/")) {
    throw new ProcessError("BAD_OPTION", `destination "${word}": write address:port, [IPv6]:port or namespace/name`);
  }
  return { destination, port: Number(port ?? 0) };
}

function printExplained(response: ExplainResponse, from: string, output: OutputOptions): void {
  if (output.format !== "table" && output.format !== "wide") {
    if (output.format === "json") {
      output.write(
        `${JSON.stringify(toJson(ExplainResponseSchema, response, { alwaysEmitImplicit: true }), undefined, 2)}\n`,
      );
    } else printRows({ schema: ExplainResponseSchema, columns: [] }, [response], output);
    return;
  }
  const { destinationAddress: address, port, protocol, verdict } = response;
  const target = `${address.includes(":") ? `[${address}]` : address}:${port}/${formatProtocol(protocol)}`;
  const sender = sourceWords.has(from)
    ? describeSource(response.sourceKind)
    : `${from} (${describeSource(response.sourceKind)})`;
  output.write(`${sender} → ${target}: ${formatEnum(VerdictSchema, verdict).toUpperCase()}\n\n`);
  const steps = response.steps.map(({ stage, text }) => ({ stage: formatEnum(StageSchema, stage), text }));
  output.write(
    formatTable(
      [
        { title: "STEP", cell: (step) => step.stage },
        { title: "BECAUSE", cell: (step) => step.text },
      ],
      steps,
      output.hasHeaders,
    ),
  );
  if (response.endpoints.length > 0) {
    output.write("\n");
    printRows(decisionTable, response.endpoints, output);
  }
  output.write(`\nTaken for granted (revision ${response.revision}):\n`);
  for (const assumption of response.assumptions) output.write(`- ${assumption}\n`);
}

function describeSource(kind: SourceKind): string {
  return kind === SourceKind.POD ? "a pod" : kind === SourceKind.NODE ? "the node itself" : "outside";
}
