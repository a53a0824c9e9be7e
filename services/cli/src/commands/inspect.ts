import { dial, parseApiAddress } from "@kpng/process/connection/dial.ts";
import { clientOptions } from "@kpng/process/credential-files.ts";
import { addOptions, type OptionSpec, parseProxyName, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Command, InvalidArgumentError } from "commander";
import type { Options } from "../context/command-context.ts";
import { readApiClient } from "../context/command-context.ts";
import { changesCommand, traceCommand } from "../inspect/changes.ts";
import { type InspectCommand, type Replica, withPlainErrors, withRequestErrors } from "../inspect/client.ts";
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
  const withReplicas: WithReplicas = (options, work) => {
    const replicas = dialReplicas(options);
    return withRequestErrors(replicas.map(({ api }) => api).join(), signal, () => work(replicas));
  };
  const make = (command: InspectCommand, path = ""): Command => {
    const asksView = command === viewCommand || command === explainCommand;
    const options = [...(asksView ? [proxyNameFilter] : []), ...remoteOptions];
    return makeInspectCommand(command, options, `kpng ${path}${command.name}`, withReplicas, signal);
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

const apiAddresses = repeatable(
  "--api <address>",
  "watcher or backend: host:port, http://host:port, https://host:port or unix:///path; status and analyze ask all that are given",
  ["127.0.0.1:12090"],
);

/** Options of the commands that query a remote watcher or a backend: its address, and credentials. */
export const remoteOptions: readonly OptionSpec[] = [
  {
    ...apiAddresses,
    parse: (text, previous) => {
      try {
        for (const address of text.split(",")) parseApiAddress(address, false);
      } catch (error) {
        throw new InvalidArgumentError((error as Error).message);
      }
      return apiAddresses.parse?.(text, previous);
    },
  },
  ...clientOptions("the connection to the watcher"),
];

/** Returns a transport to each address of {@link remoteOptions}, with their credentials. */
export function dialReplicas(options: Options): readonly Replica[] {
  const credentials = readApiClient(options);
  return (options.api as readonly string[]).map((api) => ({ api, transport: dial({ api, ...credentials }) }));
}

/** Returns the only watcher. Errors: BAD_OPTION if there are several. */
export function onlyReplica(replicas: readonly Replica[], command: string): Replica {
  const [replica, ...others] = replicas;
  if (replica !== undefined && others.length === 0) return replica;
  const given = replicas.map(({ api }) => api).join(", ");
  throw new ProcessError("BAD_OPTION", `kpng ${command} asks one watcher, and --api names several: ${given}`);
}

/** For commands that do not follow a source: a source has this option itself. */
const proxyNameFilter: OptionSpec = {
  flags: "--service-proxy-name <name>",
  description: "only Services with this value of the label service.kubernetes.io/service-proxy-name",
  default: "",
  parse: parseProxyName,
};

/**
 * How an inspect command reaches its watchers: it connects as the options say, passes them to `work`, and disconnects.
 */
export type WithReplicas = (options: Options, work: (replicas: readonly Replica[]) => Promise<void>) => Promise<void>;

/**
 * Turns an inspect command into a command of commander. `path` is how a user calls it, for its examples.
 */
export function makeInspectCommand(
  inspect: InspectCommand,
  moreOptions: readonly OptionSpec[],
  path: string,
  withReplicas: WithReplicas,
  signal: AbortSignal,
): Command {
  const { name, aliases = [], argument, parseArgument, description, options, examples } = inspect;
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
    return withPlainErrors(() =>
      withReplicas(values, async (replicas) => {
        if (inspect.runAll !== undefined) return inspect.runAll(replicas, values);
        await inspect.run(onlyReplica(replicas, name).transport, words, values, signal);
      }),
    );
  });
}

const groups = { get: "show what a watcher or a backend holds", describe: "show everything about one object" } as const;

/** The command `get` or `describe`, with its subcommands. */
export function makeGroup(name: keyof typeof groups, commands: readonly Command[]): Command {
  return commands.reduce((group, command) => group.addCommand(command), new Command(name).description(groups[name]));
}
