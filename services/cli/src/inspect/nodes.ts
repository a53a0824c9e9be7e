import { createClient } from "@connectrpc/connect";
import {
  BackendInspectService,
  GetBackendResponseSchema,
  RuleLinesSchema,
  type RuleSet,
} from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  ApplyStateSchema,
  SubscriberKind,
  SubscriberKindSchema,
  SubscriberSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type OptionSpec, parseNodeName } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import { type InspectCommand, readPages } from "./client.ts";
import { endpointTable } from "./endpoints.ts";
import {
  labelSelectorOption,
  listCommand,
  nodeFilterOption,
  nodeOption,
  notFound,
  parseFilter,
  parseServiceName,
  stateOption,
  statesOf,
} from "./list.ts";
import { isTable, outputOptions, printMessage, printMessages, printRows, readOutputOptions } from "./print/output.ts";
import {
  type Column,
  enumWord,
  formatAge,
  formatDuration,
  formatLabels,
  formatRow,
  formatSection,
  formatTable,
  oneLine,
  type TableSpec,
  terminalText,
} from "./print/text.ts";

export const nodeTable: TableSpec<typeof NodeSchema> = {
  schema: NodeSchema,
  nameOf: ({ name }) => `node/${name}`,
  columns: [
    { title: "NAME", cell: ({ name, isKnown }) => (isKnown ? name : `${name} (unknown)`) },
    { title: "STATE", cell: ({ state }) => enumWord(ApplyStateSchema, state) },
    { title: "APPLIED", cell: ({ appliedRevision }) => (appliedRevision === 0n ? "" : String(appliedRevision)) },
    { title: "LAG", cell: ({ unappliedSince }) => formatAge(unappliedSince) },
    { title: "ENDPOINTS", cell: ({ endpointCount }) => String(endpointCount) },
    { title: "ZONE", cell: ({ zone }) => zone },
    { title: "PROGRAM", cell: ({ programs }) => programs.join(",") },
    { title: "OBSERVERS", cell: ({ observerCount }) => (observerCount === 0 ? "" : String(observerCount)) },
    { title: "STREAMS", cell: ({ subscriberCount }) => String(subscriberCount), isWide: true },
    { title: "ADDRESSES", cell: ({ addresses }) => addresses.join(","), isWide: true },
    { title: "POD-CIDRS", cell: ({ podCidrs }) => podCidrs.join(","), isWide: true },
    { title: "ELIGIBLE", cell: ({ isEligible }) => String(isEligible), isWide: true },
    { title: "LABELS", cell: ({ labels }) => formatLabels(labels), isWide: true },
    { title: "ERROR", cell: ({ error }) => error, maxLength: 60 },
  ],
};

const subscriberTable: TableSpec<typeof SubscriberSchema> = {
  schema: SubscriberSchema,
  columns: [
    { title: "ID", cell: ({ id }) => String(id) },
    { title: "NODE", cell: ({ node, kind }) => (node === "" && kind !== SubscriberKind.NODE ? "(all)" : node) },
    { title: "KIND", cell: ({ kind }) => enumWord(SubscriberKindSchema, kind) },
    { title: "PROGRAM", cell: ({ program }) => program },
    { title: "PEER", cell: ({ peer }) => peer },
    { title: "STATE", cell: ({ state }) => enumWord(ApplyStateSchema, state) },
    { title: "APPLIED", cell: ({ hasAcknowledged, appliedRevision: n }) => (hasAcknowledged ? String(n) : "") },
    { title: "BEHIND", cell: ({ revisionsBehind }) => String(revisionsBehind) },
    { title: "LAG", cell: ({ unappliedSince }) => formatAge(unappliedSince) },
    { title: "AGE", cell: ({ openedAt }) => formatAge(openedAt) },
    { title: "VERSION", cell: ({ version }) => version, isWide: true },
    { title: "PROXY", cell: ({ serviceProxyName }) => serviceProxyName, isWide: true },
    { title: "SENT", cell: ({ sentRevision }) => String(sentRevision), isWide: true },
    { title: "RECEIVED", cell: ({ receivedRevision }) => String(receivedRevision), isWide: true },
    { title: "WAIT", cell: ({ timings }) => formatDuration(timings?.wait), isWide: true },
    { title: "RENDER", cell: ({ timings }) => formatDuration(timings?.render), isWide: true },
    { title: "COMMIT", cell: ({ timings }) => formatDuration(timings?.commit), isWide: true },
    { title: "ERROR", cell: ({ error }) => error, maxLength: 60 },
  ],
};

/** `kpng describe node`. The rules are known only on the node itself, where `kpng get rules` prints them. */
export const describeNodeCommand: InspectCommand = {
  name: "node",
  aliases: ["nodes", "no"],
  description: "a node with the streams of its proxies and the endpoints that run on it",
  argument: "<name>",
  parseArgument: parseNodeName,
  options: [],
  examples: "\nExamples:\n  COMMAND n1\n",
  run: async ({ client, words: [name = ""] }) => {
    const [node] = (await client.listNodes({ name })).nodes;
    if (node === undefined) throw notFound("node", name, {});
    const subscribers = await readPages(client.listSubscribers, { node: name }, (page) => page.subscribers);
    const endpoints = await readPages(client.listEndpoints, { node: name }, (page) => page.endpoints);
    const streamsText = formatSection("Streams", subscriberTable.columns, subscribers);
    const endpointsText = formatSection("Endpoints", endpointTable.columns, endpoints);
    process.stdout.write(terminalText(formatRow(nodeTable.columns, node) + streamsText + endpointsText));
  },
};

export const nodesCommand = listCommand({
  name: "nodes",
  aliases: ["node", "no"],
  description: "nodes, and the revision that each has applied",
  argument: "[name...]",
  parseArgument: parseFilter,
  options: [stateOption, labelSelectorOption],
  examples: `
Examples:
  # which nodes are not up to date?
  COMMAND --state behind,failing,absent --watch

  # which backends follow a node that the cluster does not have, e.g. because of a wrong --node-name?
  COMMAND --state unknown
`,
  noun: "node",
  table: nodeTable,
  filterOf: (name = "", options) => ({ name, states: statesOf(options) }),
  list: (client, request) => client.listNodes(request),
  watch: (client, filter, call) => client.watchNodes(filter, call),
  rowsOf: ({ nodes }) => nodes,
  keyOf: ({ name }) => name,
});

/** `kpng get subscribers`: a subscriber is the backend of a node, or another watcher. */
export const subscribersCommand = listCommand({
  name: "subscribers",
  aliases: ["subscriber", "sub"],
  description: "open streams of backends, relays and people",
  options: [nodeFilterOption, stateOption],
  examples: `
Examples:
  COMMAND -o wide
  COMMAND --node n1
`,
  noun: "subscriber",
  table: subscriberTable,
  filterOf: (_, options) => ({ node: String(options.node), states: statesOf(options) }),
  list: (client, request) => client.listSubscribers(request),
  watch: (client, filter, call) => client.watchSubscribers(filter, call),
  rowsOf: ({ subscribers }) => subscribers,
  keyOf: ({ id }) => String(id),
});

const backendNodeOption = nodeOption("node in the cluster whose backend is asked");

const backendExamples = `
--api is the unix socket that the backend's option --inspect-socket names.

Examples:
  COMMAND --api unix:///run/kpng/iptables.sock
  COMMAND --api unix:///run/kpng/iptables.sock -o yaml
`;

const backendTable: TableSpec<typeof GetBackendResponseSchema> = {
  schema: GetBackendResponseSchema,
  columns: [
    { title: "PROGRAM", cell: ({ program }) => program },
    { title: "NODE", cell: ({ nodeName }) => nodeName },
    { title: "CONNECTED", cell: ({ isConnected }) => (isConnected ? "yes" : "no") },
    { title: "RECEIVED", cell: ({ receivedRevision }) => String(receivedRevision) },
    { title: "APPLIED", cell: ({ appliedRevision }) => String(appliedRevision) },
    { title: "SERVICES", cell: ({ serviceCount }) => String(serviceCount) },
    { title: "ENDPOINTS", cell: ({ endpointCount }) => String(endpointCount) },
    { title: "LAST-SYNC", cell: ({ lastSync }) => formatAge(lastSync?.startedAt) },
    { title: "DURATION", cell: ({ lastSync }) => formatDuration(lastSync?.duration) },
    { title: "AGE", cell: ({ startedAt }) => formatAge(startedAt), isWide: true },
    { title: "VERSION", cell: ({ version }) => version, isWide: true },
    { title: "ERROR", cell: ({ lastSync }) => lastSync?.error ?? "" },
  ],
};

const ruleSetColumns: readonly Column<RuleSet>[] = [
  { title: "RULES", cell: ({ name }) => name },
  { title: "DESIRED", cell: ({ desiredCount }) => String(desiredCount) },
  { title: "ACTUAL", cell: ({ actualCount }) => String(actualCount) },
  { title: "READ", cell: ({ readAt }) => formatAge(readAt) },
  { title: "COMMITTED", cell: ({ committedAt }) => formatAge(committedAt) },
  { title: "REPAIRS", cell: ({ repairCount }) => String(repairCount) },
  {
    title: "DRIFT",
    cell: ({ drift: [first = "", ...others] }) => (others.length === 0 ? first : `${first}, ${others.length} more`),
  },
];

export const backendCommand: InspectCommand = {
  name: "backend",
  asksBackend: true,
  remoteOptions: [backendNodeOption],
  description: "a backend of this node: its view, its last sync, and the state of its rules",
  options: outputOptions,
  examples: backendExamples,
  run: async ({ transport, options }) => {
    const output = await readOutputOptions(options);
    const backend = await createClient(BackendInspectService, transport).getBackend({});
    if (output.format === "json") printMessage(backendTable.schema, backend, output);
    else printRows(backendTable, [backend], output);
    if (isTable(output) && backend.ruleSets.length > 0) {
      output.write(`\n${formatTable(ruleSetColumns, backend.ruleSets)}`);
    }
  },
};

/** A backend finds rules by the key of a Service, and has no list of Services in which to look for a name. */
const ruleServiceOption: OptionSpec = {
  flags: "--service <namespace/name>",
  description: "only the rules that serve this Service",
  default: "",
  parse: (text) => {
    if (parseServiceName(text).includes("/")) return text;
    throw new InvalidArgumentError("expected a Service as namespace/name");
  },
};

export const rulesCommand: InspectCommand = {
  name: "rules",
  asksBackend: true,
  remoteOptions: [backendNodeOption],
  description: "rules that a backend of this node wants; with -o json, also those in the kernel",
  argument: "[rule-set]",
  parseArgument: parseFilter,
  options: [ruleServiceOption, ...outputOptions],
  examples: backendExamples,
  run: async ({ transport, words: [ruleSet = ""], options }) => {
    const output = await readOutputOptions(options);
    const request = { ruleSet, service: String(options.service) };
    const { ruleSets } = await createClient(BackendInspectService, transport).listRules(request);
    if (ruleSets.length === 0 && ruleSet !== "") {
      throw new ProcessError("REQUEST_FAILED", `rule set "${ruleSet}" not found; omit the name to print all`);
    }
    if (!isTable(output)) return printMessages(RuleLinesSchema, ruleSets, output);
    for (const { name, desired } of ruleSets) {
      output.write(`# ${name}\n`);
      for (const line of desired) output.write(`${oneLine(line)}\n`);
    }
  },
};
