import type { Transport } from "@connectrpc/connect";
import { dial, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { clientOptions } from "@kpng/process/credential-files.ts";
import { addOptions, type OptionSpec, parseProxyName } from "@kpng/process/options.ts";
import { Command, InvalidArgumentError } from "commander";
import type { Options } from "../context/command-context.ts";
import { readApiClient } from "../context/command-context.ts";
import { changesCommand, traceCommand } from "../inspect/changes.ts";
import { type InspectCommand, withPlainErrors, withRequestErrors } from "../inspect/client.ts";
import { endpointsCommand, viewCommand } from "../inspect/endpoints.ts";
import { explainCommand } from "../inspect/explain.ts";
import { analyzeCommand } from "../inspect/findings.ts";
import {
  backendCommand,
  describeNodeCommand,
  nodesCommand,
  rulesCommand,
  subscribersCommand,
} from "../inspect/nodes.ts";
import { bugReportCommand, recordCommand } from "../inspect/record.ts";
import { describeServiceCommand, servicesCommand } from "../inspect/services.ts";
import { statusCommand, topCommand } from "../inspect/status.ts";

/** `kpng get|describe|explain|status|analyze|trace|top|record|bug-report`: query a remote watcher or a backend. */
export function makeInspect(name: string, signal: AbortSignal): Command {
  const withTransport: WithTransport = async (options, work) => {
    const api = String(options.api ?? "");
    const transport = dialRemote(options);
    await withRequestErrors(api, signal, () => work(transport));
  };
  const make = (command: InspectCommand, path = ""): Command => {
    const asksView = command === viewCommand || command === explainCommand;
    const options = [...(asksView ? [proxyNameFilter] : []), ...remoteOptions];
    return makeInspectCommand(command, options, `kpng ${path}${command.name}`, withTransport, signal);
  };
  const lists = [servicesCommand, endpointsCommand, nodesCommand, subscribersCommand, changesCommand];
  const groups = {
    get: [...lists, backendCommand, rulesCommand, viewCommand],
    describe: [describeServiceCommand, describeNodeCommand],
  };
  if (name === "get" || name === "describe") {
    return makeGroup(
      name,
      groups[name].map((command) => make(command, `${name} `)),
    );
  }
  const single = [statusCommand, explainCommand, topCommand, analyzeCommand, traceCommand, recordCommand];
  const command = [...single, bugReportCommand].find((one) => one.name === name);
  if (command === undefined) throw new Error(`no command "${name}"`);
  return make(command);
}

/** Options of the commands that query a remote watcher or a backend: its address, and credentials. */
export const remoteOptions: readonly OptionSpec[] = [
  {
    flags: "--api <address>",
    description: "watcher or backend: host:port, http://host:port, https://host:port or unix:///path",
    default: "127.0.0.1:12090",
    parse: (text) => {
      try {
        parseApiAddress(text, false);
      } catch (error) {
        throw new InvalidArgumentError((error as Error).message);
      }
      return text;
    },
  },
  ...clientOptions("the connection to the watcher"),
];

/** Returns a transport to the address of {@link remoteOptions}, with their credentials. */
export function dialRemote(options: Options): Transport {
  return dial({ api: String(options.api ?? ""), ...readApiClient(options) });
}

/** For commands that do not follow a source: a source has this option itself. */
const proxyNameFilter: OptionSpec = {
  flags: "--service-proxy-name <name>",
  description: "only Services with this value of the label service.kubernetes.io/service-proxy-name",
  default: "",
  parse: parseProxyName,
};

/**
 * How an inspect command reaches its watcher: it connects as the options say, passes the transport to `work`, and
 * disconnects.
 */
export type WithTransport = (options: Options, work: (transport: Transport) => Promise<void>) => Promise<void>;

/**
 * Turns an inspect command into a command of commander. `path` is how a user calls it, for its examples.
 */
export function makeInspectCommand(
  { name, aliases = [], argument, parseArgument, description, options, examples, run }: InspectCommand,
  moreOptions: readonly OptionSpec[],
  path: string,
  withTransport: WithTransport,
  signal: AbortSignal,
): Command {
  // For "[name...]", commander calls `collect` for each word with the words before it; for "[name]" once.
  const isList = argument?.includes("...") === true;
  const collect = (word: string, before: unknown): unknown => {
    const parsed = parseArgument?.(word) ?? word;
    return isList ? [...((before as readonly string[] | undefined) ?? []), parsed] : parsed;
  };
  const command = addOptions(new Command(name), [...options, ...moreOptions])
    .description(description)
    .aliases([...aliases])
    .addHelpText("after", examples.replaceAll("COMMAND", path));
  if (argument !== undefined) command.argument(argument, "", collect);
  return command.action((...parts: readonly unknown[]) => {
    const self = parts.at(-1) as Command;
    const words = argument === undefined ? [] : ([parts[0] ?? []].flat() as string[]);
    const values = self.optsWithGlobals();
    return withPlainErrors(() => withTransport(values, (transport) => run(transport, words, values, signal)));
  });
}

const groups = { get: "show what a watcher or a backend holds", describe: "show everything about one object" } as const;

/** The command `get` or `describe`, with its subcommands. */
export function makeGroup(name: keyof typeof groups, commands: readonly Command[]): Command {
  return commands.reduce((group, command) => group.addCommand(command), new Command(name).description(groups[name]));
}
