import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type OptionSpec, parseNodeName, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../commands/context.ts";
import { type InspectClient, inspectClient, pageSize, readPages, unknownNode } from "./client.ts";
import type { ClientCommand } from "./client-command.ts";
import {
  namespaceOption,
  parseFilter,
  parseServiceName,
  serviceFilterOption,
  splitName,
  splitService,
} from "./names.ts";
import { outputOptions, printRows, type RowKind, readOutputOptions, WatchPrinter } from "./output.ts";
import { changeTable } from "./tables/change-table.ts";
import { decisionTable } from "./tables/decision-table.ts";
import { endpointTable } from "./tables/endpoint-table.ts";
import { nodeTable } from "./tables/node-table.ts";
import { serviceTable } from "./tables/service-table.ts";
import { subscriberTable } from "./tables/subscriber-table.ts";

const watchOption: OptionSpec = { flags: "-w, --watch", description: "go on with what changes" };

const nodeFilterOption: OptionSpec = {
  flags: "--node <name>",
  description: "only of this node",
  default: "",
  parse: parseNodeName,
};

const notAppliedOption: OptionSpec = {
  flags: "--not-applied <revision>",
  description: "only those that have not applied this revision",
  default: 0,
  parse: parseWholeNumber("--not-applied", 1, Number.MAX_SAFE_INTEGER),
};

const stateNames: ReadonlyMap<string, ApplyState> = new Map([
  ["current", ApplyState.CURRENT],
  ["received", ApplyState.RECEIVED],
  ["behind", ApplyState.BEHIND],
  ["failing", ApplyState.FAILING],
  ["absent", ApplyState.ABSENT],
]);

const stateOption: OptionSpec = (() => {
  const spec = repeatable("--state <state>", `only those that are ${[...stateNames.keys()].join(", ")}`);
  const parse = (text: string, previous: unknown): unknown => {
    parseFilter(text);
    const states = spec.parse?.(text, previous) as readonly string[];
    const wrong = states.find((state) => !stateNames.has(state));
    if (wrong === undefined) return states;
    throw new InvalidArgumentError(`"${wrong}" is no state: ${[...stateNames.keys()].join(", ")}`);
  };
  return { ...spec, parse };
})();

interface Table<D extends DescMessage, F> {
  readonly kind: RowKind<D>;
  readonly filterOf: (word: string | undefined, options: Options) => F;
  readonly list: (client: InspectClient, filter: F) => Promise<MessageShape<D>[]>;
  readonly watch: (
    client: InspectClient,
    filter: F,
    signal: AbortSignal,
  ) => AsyncIterable<{ readonly rows: readonly MessageShape<D>[]; readonly deleted: readonly string[] }>;
}

function runTable<D extends DescMessage, F>({ kind, filterOf, list, watch }: Table<D, F>): ClientCommand["run"] {
  return async (transport, word, options, signal) => {
    const client = inspectClient(transport);
    const output = readOutputOptions(options);
    const filter = filterOf(word, options);
    if (options.watch === true) {
      const printer = new WatchPrinter(kind, output);
      for await (const { rows, deleted } of watch(client, filter, signal)) printer.print(rows, deleted);
      return;
    }
    const rows = await list(client, filter);
    if (rows.length === 0 && word !== undefined)
      throw new ProcessError("REQUEST_FAILED", `nothing is called "${word}"`);
    printRows(kind, rows, output);
    if (rows.length === 0) process.stderr.write("nothing found\n");
  };
}

function statesOf(options: Options): ApplyState[] {
  return (options.state as readonly string[]).flatMap((name) => stateNames.get(name) ?? []);
}

const services: ClientCommand = {
  name: "services",
  aliases: ["service", "svc"],
  description: "what the watcher knows of Services, with how many of their endpoints are ready",
  words: "[name]",
  parseWord: parseServiceName,
  options: [namespaceOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND -n default
  COMMAND default/web -o yaml
`,
  run: runTable({
    kind: serviceTable,
    filterOf: (word, options) => splitName(word, options),
    list: (client, filter) =>
      readPages(
        (pageToken) => client.listServices({ ...filter, pageSize, pageToken }),
        (page) => page.services,
      ),
    watch: async function* (client, filter, signal) {
      for await (const { services: rows, deleted } of client.watchServices(filter, { signal })) yield { rows, deleted };
    },
  }),
};

const endpoints: ClientCommand = {
  name: "endpoints",
  aliases: ["endpoint", "ep"],
  description: "what EndpointSlices name, by pod or address",
  words: "[pod-or-address]",
  parseWord: parseFilter,
  options: [namespaceOption, serviceFilterOption, nodeFilterOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND -n default --service web
  COMMAND 10.1.0.7 -o wide
  COMMAND --node n1 --watch
`,
  run: runTable({
    kind: endpointTable,
    filterOf: (endpoint = "", options) => ({
      ...splitService(options),
      node: String(options.node),
      endpoint,
    }),
    list: (client, filter) =>
      readPages(
        (pageToken) => client.listEndpoints({ ...filter, pageSize, pageToken }),
        (page) => page.endpoints,
      ),
    watch: async function* (client, filter, signal) {
      for await (const { endpoints: rows, deleted } of client.watchEndpoints(filter, { signal })) {
        yield { rows, deleted };
      }
    },
  }),
};

const nodes: ClientCommand = {
  name: "nodes",
  aliases: ["node", "no"],
  description: "the nodes, and how far each has come",
  words: "[name]",
  parseWord: parseFilter,
  options: [notAppliedOption, stateOption, watchOption, ...outputOptions],
  examples: `
Examples:
  # which nodes have not applied revision 1234?
  COMMAND --not-applied 1234

  # who is not up to date?
  COMMAND --state behind,failing,absent --watch
`,
  run: runTable({
    kind: nodeTable,
    filterOf: (name = "", options) => ({
      name,
      notAppliedRevision: BigInt(Number(options.notApplied)),
      states: statesOf(options),
    }),
    list: (client, filter) =>
      readPages(
        (pageToken) => client.listNodes({ ...filter, pageSize, pageToken }),
        (page) => page.nodes,
      ),
    watch: async function* (client, filter, signal) {
      for await (const { nodes: rows, deleted } of client.watchNodes(filter, { signal })) yield { rows, deleted };
    },
  }),
};

const subscribers: ClientCommand = {
  name: "subscribers",
  aliases: ["subscriber", "sub"],
  description: "the streams that are open: backends, relays, people",
  words: "",
  options: [nodeFilterOption, notAppliedOption, stateOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND -o wide
  COMMAND --node n1
`,
  run: runTable({
    kind: subscriberTable,
    filterOf: (_, options) => ({
      node: String(options.node),
      notAppliedRevision: BigInt(Number(options.notApplied)),
      states: statesOf(options),
    }),
    list: (client, filter) =>
      readPages(
        (pageToken) => client.listSubscribers({ ...filter, pageSize, pageToken }),
        (page) => page.subscribers,
      ),
    watch: async function* (client, filter, signal) {
      for await (const { subscribers: rows, deleted } of client.watchSubscribers(filter, { signal })) {
        yield { rows, deleted: deleted.map(String) };
      }
    },
  }),
};

export const limitOption: OptionSpec = {
  flags: "--limit <count>",
  description: "at most so many of the newest",
  default: 20,
  parse: parseWholeNumber("--limit", 1, 1_000),
};

const changes: ClientCommand = {
  name: "changes",
  aliases: ["change"],
  description: "what changed lately, and how long it took until it was in force; the newest first",
  words: "",
  options: [namespaceOption, serviceFilterOption, limitOption, watchOption, ...outputOptions],
  examples: `
Examples:
  COMMAND
  COMMAND -n default --service web --watch
`,
  run: runTable({
    kind: changeTable,
    filterOf: (_, options) => ({
      ...splitService(options),
      pageSize: Number(options.limit),
    }),
    list: async (client, filter) => (await client.listChanges(filter)).changes,
    watch: async function* (client, { namespace = "", service = "" }, signal) {
      for await (const { changes: rows } of client.watchChanges({ namespace, service }, { signal })) {
        yield { rows, deleted: [] };
      }
    },
  }),
};

/** At a source the option names several, the first of which is the standard one. */
export function readProxyName({ serviceProxyName }: Options): string {
  return typeof serviceProxyName === "string" ? serviceProxyName : "";
}

const view: ClientCommand = {
  name: "view",
  description: "what a node does with each endpoint, and why",
  words: "<node>",
  parseWord: parseNodeName,
  options: [
    namespaceOption,
    serviceFilterOption,
    { flags: "--endpoint <pod-or-address>", description: "only of this endpoint", default: "", parse: parseFilter },
    { flags: "--unused", description: "only endpoints that the node does not use" },
    ...outputOptions,
  ],
  examples: `
Examples:
  # why does n1 not send to pod web-2?
  COMMAND n1 --endpoint web-2

  COMMAND n1 --unused -n default
`,
  run: async (transport, nodeName = "", options) => {
    const client = inspectClient(transport);
    const rows = await readPages(
      (pageToken) =>
        client.listNodeEndpoints({
          ...splitService(options),
          nodeName,
          serviceProxyName: readProxyName(options),
          endpoint: String(options.endpoint),
          onlyUnused: options.unused === true,
          pageSize,
          pageToken,
        }),
      (page) => {
        if (!page.isNodeKnown) process.stderr.write(`${unknownNode(nodeName)}\n`);
        return page.decisions;
      },
    );
    printRows(decisionTable, rows, readOutputOptions(options));
    if (rows.length === 0) process.stderr.write("nothing found\n");
  },
};

export const getCommands = { services, endpoints, nodes, subscribers, changes, view } as const;
