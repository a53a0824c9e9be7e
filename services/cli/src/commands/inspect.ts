import { basename } from "node:path";
import { dial } from "@kpng/process/connection/dial.ts";
import { clientOptions, readCredentials } from "@kpng/process/credential-files.ts";
import { addOptions, type OptionSpec, repeatableNonEmpty, textOption } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Command } from "commander";
import type { Options } from "../context/command-context.ts";
import { changesCommand, traceCommand } from "../inspect/changes.ts";
import {
  type InspectCommand,
  type Replica,
  withDeadline,
  withPlainErrors,
  withRequestErrors,
} from "../inspect/client.ts";
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
import { joinReplicas } from "../inspect/replicas.ts";
import { describeServiceCommand, servicesCommand } from "../inspect/services.ts";
import { statusCommand, topCommand } from "../inspect/status.ts";

/** `kpng get|describe|explain|status|analyze|trace|top|record|bug-report`: queries a remote watcher or a backend. */
export function makeInspect(name: string, signal: AbortSignal): Command {
  const make = (command: InspectCommand, path = ""): Command => {
    const specs = [...(command.remoteOptions ?? []), ...remoteOptions];
    const ask: WithReplicas = (options, work) => withReplicas(options, signal, work, command.asksBackend);
    return makeInspectCommand(command, specs, `kpng ${path}${command.name}`, ask, signal);
  };
  const lists = [servicesCommand, endpointsCommand, nodesCommand, subscribersCommand, changesCommand];
  const groups = {
    get: [...lists, backendCommand, rulesCommand, viewCommand],
    describe: [describeServiceCommand, describeNodeCommand],
  };
  if (name === "get" || name === "describe") return makeGroup(name, groups[name], make);
  const single = [statusCommand, explainCommand, topCommand, analyzeCommand, traceCommand, recordCommand];
  const command = [...single, bugReportCommand].find((one) => one.name === name);
  if (command === undefined) throw new Error(`no command "${name}"`);
  return make(command);
}

const apiAddresses = repeatableNonEmpty(
  "--api <address>",
  "watchers or a backend: host:port, http://host:port, https://host:port or unix:///path; in place of a cluster",
  ["127.0.0.1:12090"],
);

const clusterOptions: readonly OptionSpec[] = [
  textOption(
    "--kubeconfig <file>",
    "ask kpng in this kubeconfig's cluster, through the API server (default: $KUBECONFIG)",
  ),
  textOption("--context <name>", "context of the kubeconfig, or of ~/.kube/config if there is no other"),
  textOption("--kpng-namespace <name>", "namespace of kpng in the cluster", "kube-system"),
  textOption("--pod <name>", "ask only this pod of kpng in the cluster (default: all watchers)"),
];

/** True if the options or the environment name a cluster, or if this is `kubectl kpng`. */
function namesCluster({ kubeconfig, context }: Options): boolean {
  const isPlugin = [process.argv0, process.argv[1] ?? ""].some((path) => basename(path) === "kubectl-kpng");
  return isPlugin || kubeconfig !== undefined || context !== undefined || (process.env.KUBECONFIG ?? "") !== "";
}

/** Options of the commands that query a remote watcher or a backend: the address or the cluster, and credentials. */
export const remoteOptions: readonly OptionSpec[] = [
  apiAddresses,
  ...clusterOptions,
  ...clientOptions("the connection to the watcher"),
];

/**
 * Connects to the watchers or the backend that {@link remoteOptions} name, passes them to `work`, and disconnects. Does
 * nothing more when `signal` aborts.
 *
 * Errors: REQUEST_FAILED with the names of the replicas; those of {@link connectReplicas}.
 */
export async function withReplicas(
  options: Options,
  signal: AbortSignal,
  work: (replicas: readonly Replica[]) => Promise<void>,
  asksBackend = false,
): Promise<void> {
  let replicas: readonly Replica[] = [];
  try {
    replicas = await connectReplicas(options, signal, asksBackend);
    const names = replicas.map(({ api }) => api).join(", ");
    await withRequestErrors(names, signal, () => work(withDeadline(replicas)));
  } catch (error) {
    // After Ctrl-C, the failure is its consequence.
    if (!signal.aborted) throw error;
  } finally {
    for (const replica of replicas) replica.close?.();
  }
}

/** An address takes precedence over a cluster. */
async function connectReplicas(
  options: Options,
  signal: AbortSignal,
  asksBackend: boolean,
): Promise<readonly Replica[]> {
  // The same array, not an equal one: the user has not given --api.
  if (options.api === apiAddresses.default && namesCluster(options)) {
    const { findBackends, findWatchers } = await import("../cluster/watchers.ts");
    return asksBackend ? findBackends(options, signal) : findWatchers(options, signal);
  }
  const credentials = readCredentials(options);
  return (options.api as readonly string[]).map((api) => ({ api, transport: dial({ api, ...credentials }) }));
}

/** Passes the watchers that the options name to `work`. */
export type WithReplicas = (options: Options, work: (replicas: readonly Replica[]) => Promise<void>) => Promise<void>;

/** Turns an inspect command into a commander command. `path` is how a user calls it; its examples show that. */
export function makeInspectCommand(
  inspect: InspectCommand,
  moreOptions: readonly OptionSpec[],
  path: string,
  ask: WithReplicas,
  signal: AbortSignal,
): Command {
  const { name, aliases = [], argument, parseArgument, description = "", options, examples } = inspect;
  // For "[name...]", commander calls `collect` for each word, with the words before it; for "[name]", only once.
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
  return command.action(() => {
    const words: readonly string[] = command.processedArgs.flat().filter((word) => word !== undefined);
    const options = command.optsWithGlobals();
    return withPlainErrors(() =>
      ask(options, async (replicas) => {
        if (inspect.asksBackend === true && replicas.length > 1) {
          const names = replicas.map(({ api }) => api).join(", ");
          throw new ProcessError("BAD_OPTION", `kpng get ${name} asks one backend, and there are several: ${names}`);
        }
        await inspect.run({ replicas, ...joinReplicas(replicas), words, options, signal });
      }),
    );
  });
}

/** The command `get` or `describe`. `make` returns its subcommands. */
export function makeGroup(
  name: "get" | "describe",
  commands: readonly InspectCommand[],
  make: (command: InspectCommand, path: string) => Command,
): Command {
  const description = name === "get" ? "show what a watcher or a backend holds" : "show everything about one object";
  const group = new Command(name).description(description);
  for (const command of commands) group.addCommand(make(command, `${name} `));
  return group;
}
