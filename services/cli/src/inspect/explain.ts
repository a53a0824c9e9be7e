import { addressAndPort } from "@kpng/model/address.ts";
import { Protocol, ProtocolSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  SourceKind,
  SourceKindSchema,
  StageSchema,
  type Step,
  VerdictSchema,
} from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { type ExplainResponse, ExplainResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { oneOf, parseNonEmptyText, repeatable, textOption } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { type InspectClient, type InspectCommand, warnUnknownNode } from "./client.ts";
import { decisionTable } from "./endpoints.ts";
import { nodeOption, proxyNameOption, readProxyName } from "./list.ts";
import {
  isTable,
  type OutputOptions,
  outputOptions,
  printMessage,
  printRows,
  readOutputOptions,
} from "./print/output.ts";
import { type Column, enumWord, enumWords, formatTable } from "./print/text.ts";

const sourceNames: ReadonlyMap<string, SourceKind> = enumWords(SourceKindSchema);
const protocolNames: ReadonlyMap<string, Protocol> = enumWords(ProtocolSchema);

export const explainCommand: InspectCommand = {
  name: "explain",
  description: "what a node does with a packet, and why",
  argument: "<destination>",
  parseArgument: parseNonEmptyText,
  options: [
    nodeOption("node that the packet reaches (required)"),
    textOption(
      "--from <sender>",
      "source address of the packet; or pod (any on the node), node (the node itself) or outside (any other)",
      "pod",
    ),
    {
      flags: "--protocol <protocol>",
      description: "tcp, udp or sctp (default: the protocol of the port)",
      parse: (text) => oneOf([...protocolNames.keys()])(text.toUpperCase()),
    },
    repeatable(
      "--cluster-cidr <cidrs>",
      "pod CIDRs of the cluster, as the node's proxy has them (default: those of all Nodes)",
    ),
    { flags: "--masquerade-all", description: "the node's proxy masquerades all traffic to cluster IPs" },
    repeatable("--nodeport-addresses <cidrs>", "addresses on which the node's proxy serves node ports (default: all)"),
    ...outputOptions,
  ],
  remoteOptions: [proxyNameOption],
  examples: `
The destination is address:port, [IPv6]:port, or a Service: namespace/name, or its name in the namespace default. The port
of a Service is a number or a name, and may be left out. The answer follows the rules of kube-proxy's iptables mode and
assumes that the node has applied the watcher's state.

Examples:
  COMMAND --node n1 default/web:http
  COMMAND --node n1 --from 203.0.113.7 198.51.100.10:443
  COMMAND --node n1 --from outside 192.0.2.1:30080 -o json
`,
  run: async ({ client, words: [argument = ""], options }) => {
    if (options.node === undefined) {
      const hint =
        "kpng explain --node NODE NAMESPACE/NAME is about a packet; kpng get services -o json has all fields";
      throw new ProcessError("BAD_OPTION", `--node is required: the node that the packet reaches\nHint: ${hint}`);
    }
    const from = String(options.from);
    const sourceKind = sourceNames.get(from);
    const given = protocolNames.get(String(options.protocol));
    const response = await client.explain({
      ...(await findDestination(client, argument, given)),
      nodeName: String(options.node),
      serviceProxyName: readProxyName(options),
      sourceAddress: sourceKind === undefined ? from : "",
      sourceKind: sourceKind ?? SourceKind.UNSPECIFIED,
      settings: {
        clusterCidrs: [...(options.clusterCidr as readonly string[])],
        masqueradeAll: options.masqueradeAll === true,
        nodePortAddresses: [...(options.nodeportAddresses as readonly string[])],
      },
    });
    if (!response.isNodeKnown) warnUnknownNode(String(options.node));
    const output = await readOutputOptions(options);
    if (isTable(output)) printExplanation(response, from, output);
    else printMessage(ExplainResponseSchema, response, output);
  },
};

/**
 * Parses `address:port`, `[IPv6]:port` or `[namespace/]name[:port]`; the name of a port is looked up in the Service, and
 * determines the protocol. Port 0 stands for the only port of the Service. Errors: BAD_OPTION.
 */
async function findDestination(
  client: InspectClient,
  text: string,
  given: Protocol = Protocol.UNSPECIFIED,
): Promise<{ readonly destination: string; readonly port: number; readonly protocol: Protocol }> {
  const [, namespace = "default", full, short, portName = "0"] =
    /^(?:([^/:]+)\/([^/:]+)|([a-z][a-z0-9-]*))(?::([a-z0-9-]+))?$/.exec(text) ?? [];
  const name = full ?? short;
  if (name === undefined) {
    const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:/]+)):(\d{1,5})$/.exec(text) ?? [];
    const destination = bracketed ?? plain;
    if (destination !== undefined) return { destination, port: Number(port), protocol: given };
    const expected = "expected address:port, [IPv6]:port or a Service";
    throw new ProcessError("BAD_OPTION", `invalid destination "${text}": ${expected}`);
  }
  const destination = `${namespace}/${name}`;
  if (/^\d{1,5}$/.test(portName)) return { destination, port: Number(portName), protocol: given };
  const { services } = await client.listServices({ namespace, name });
  const ports = services[0]?.ports ?? [];
  const port = ports.find((one) => one.name === portName);
  if (port !== undefined) {
    const { protocol } = port;
    if (given === Protocol.UNSPECIFIED || given === protocol) return { destination, port: port.port, protocol };
    const [wanted, actual] = [given, protocol].map((each) => enumWord(ProtocolSchema, each));
    throw new ProcessError("BAD_OPTION", `--protocol ${wanted}: port "${portName}" of "${destination}" is ${actual}`);
  }
  const known = ports.map((one) => one.name).filter((one) => one !== "");
  const names = known.length === 0 ? "its ports have no names" : `its ports are ${known.join(", ")}`;
  const reason = services.length === 0 ? `Service "${destination}" not found` : names;
  throw new ProcessError("BAD_OPTION", `no port "${portName}" in destination "${text}": ${reason}`);
}

function printExplanation(response: ExplainResponse, from: string, output: OutputOptions): void {
  const { destinationAddress: address, port, protocol, sourceKind, verdict } = response;
  const source =
    sourceKind === SourceKind.POD ? "a pod" : sourceKind === SourceKind.NODE ? "the node itself" : "outside";
  const sender = sourceNames.has(from) ? source : `${from} (${source})`;
  const target = `${addressAndPort(address, port)}/${enumWord(ProtocolSchema, protocol)}`;
  output.write(`${sender} → ${target}: ${enumWord(VerdictSchema, verdict).toUpperCase()}\n\n`);
  output.write(formatTable(stepColumns, response.steps));
  if (response.endpoints.length > 0) {
    output.write("\n");
    printRows(decisionTable, response.endpoints, output);
  }
  output.write(`\nAssumptions (revision ${response.revision}):\n`);
  for (const assumption of response.assumptions) output.write(`- ${assumption}\n`);
}

const stepColumns: readonly Column<Step>[] = [
  { title: "STEP", cell: ({ stage }) => enumWord(StageSchema, stage) },
  { title: "REASON", cell: ({ text }) => text },
];
