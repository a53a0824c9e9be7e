import { createRouterTransport, type Transport } from "@connectrpc/connect";
import { watcherTimeoutOption } from "@kpng/backend-kit/backend-options.ts";
import { dial, parseApiAddress } from "@kpng/process/dial.ts";
import type { Health } from "@kpng/process/health.ts";
import { addOptions, logLevelOption, type OptionSpec, parseProxyName } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { runWithMain } from "@kpng/process/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { tlsOptions } from "@kpng/process/tls-files.ts";
import { inspection } from "@kpng/watcher/inspect/inspection.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { makeRoutes } from "@kpng/watcher/stream/serve/routes.ts";
import { Command } from "commander";
import { asking } from "../inspect/client.ts";
import type { ClientCommand } from "../inspect/client-command.ts";
import { explainCommand } from "../inspect/explain.ts";
import { getCommands } from "../inspect/get.ts";
import { backendCommand, rulesCommand } from "../inspect/get-backend.ts";
import { recordCommand } from "../inspect/record.ts";
import { topCommand } from "../inspect/top.ts";
import { traceCommand } from "../inspect/trace.ts";
import { type CommonOptions, type Options, readApiClientTls, withContext } from "./context.ts";
import { routesOptions } from "./sinks.ts";
import type { SourceCommand } from "./sources.ts";

/** Gives `work` a watcher to ask, as the options say, and lets go of it. */
type WithTransport = (options: Options, work: (transport: Transport) => Promise<void>) => Promise<void>;

/** `kpng get|explain|trace|top|record`: ask a watcher elsewhere. */
export function makeInspect(signal: AbortSignal): readonly Command[] {
  const ask: WithTransport = async (options, work) => {
    const api = String(options.api ?? "");
    const tls = readApiClientTls(options);
    const transport = dial({ api, tls });
    await asking(api, signal, () => work(transport));
  };
  const build = (command: ClientCommand, path = "", more: readonly OptionSpec[] = []): Command =>
    makeCommand(command, [...more, ...remoteOptions], `kpng ${path}${command.name}`, ask, signal);
  const { view, ...others } = getCommands;
  const get = [...Object.values(others), backendCommand, rulesCommand].map((command) => build(command, "get "));
  return [
    makeGet([...get, build(view, "get ", [proxyNameFilter])]),
    build(explainCommand, "", [proxyNameFilter]),
    build(traceCommand),
    build(topCommand),
    build(recordCommand),
  ];
}

/** `kpng SOURCE get|explain`: ask a watcher of this process about what the source gives. */
export function makeInspectSource(source: SourceCommand, signal: AbortSignal): readonly Command[] {
  const ask: WithTransport = (options, work) =>
    withContext(options as unknown as CommonOptions, "kpng-watcher", async (context) => {
      const store = new Store();
      const routes = routesOptions(options.serviceProxyName as readonly string[], store, context);
      const stop = new AbortController();
      const more = makeRoutes({ ...routes, moreServices: [inspection(routes)] }, stop.signal);
      const transport = createRouterTransport(more);
      const main: Task = {
        name: "inspect",
        run: async (ended) => {
          const limitMs = source.asksServer === true ? Number(options.watcherTimeout) : 0;
          if (!(await hasState(store, context.health, limitMs, ended))) return;
          await asking("the watcher of this process", ended, () => work(transport));
        },
      };
      try {
        await runWithMain(main, [source.make({ ...options, isAsked: true }, store, context)], signal);
      } finally {
        stop.abort();
      }
    });
  const options = [
    { ...logLevelOption, default: "error" },
    ...(source.asksServer === true ? [serverTimeoutOption] : []),
  ];
  const build = (command: ClientCommand, path = ""): Command =>
    makeCommand(command, options, `kpng ${source.name} ${path}${command.name}`, ask, signal);
  // Of a watcher that nobody subscribes to there are no streams to tell of.
  const { services, endpoints, nodes, changes, view } = getCommands;
  const get = [services, endpoints, nodes, changes, view].map((command) => build(command, "get "));
  return [makeGet(get), build(explainCommand)];
}

const serverTimeoutOption: OptionSpec = {
  ...watcherTimeoutOption,
  description: "how long to wait until the server has listed everything; 0 for ever",
};

/**
 * Waits until a source has given everything; false if `signal` aborts before. `limitMs` 0 is no limit.
 *
 * Errors: REQUEST_FAILED after `limitMs`, with what the source waits for.
 */
async function hasState(store: Store, health: Health, limitMs: number, signal: AbortSignal): Promise<boolean> {
  const over = new AbortController();
  const timer = limitMs === 0 ? undefined : setTimeout(() => over.abort(), limitMs);
  const snapshot = await store.next(0, AbortSignal.any([signal, over.signal]));
  clearTimeout(timer);
  if (snapshot !== undefined) return true;
  if (signal.aborted) return false;
  const reasons = health.waitingReasons("source/");
  const why = reasons.length === 0 ? "nothing has come yet" : reasons.join("; ");
  throw new ProcessError("REQUEST_FAILED", `no state of the cluster within ${limitMs} ms (--watcher-timeout): ${why}`);
}

/** At a source it is the source's option. */
const proxyNameFilter: OptionSpec = {
  flags: "--service-proxy-name <name>",
  description: "whose Services: the value of their label service.kubernetes.io/service-proxy-name",
  default: "",
  parse: parseProxyName,
};

const remoteOptions: readonly OptionSpec[] = [
  {
    flags: "--api <address>",
    description: "the watcher: host:port, http://host:port, https://host:port or unix:///path",
    default: "127.0.0.1:12090",
    parse: (text) => {
      parseApiAddress(text, false);
      return text;
    },
  },
  ...tlsOptions("api-client-", "the connection to the watcher"),
];

function makeGet(commands: readonly Command[]): Command {
  const get = new Command("get").description("what a watcher holds, and how far each node is");
  for (const command of commands) get.addCommand(command);
  return get;
}

function makeCommand(
  { name, aliases = [], words, parseWord, description, options, examples, run }: ClientCommand,
  moreOptions: readonly OptionSpec[],
  path: string,
  ask: WithTransport,
  signal: AbortSignal,
): Command {
  const command = addOptions(new Command(name), [...options, ...moreOptions])
    .description(description)
    .aliases([...aliases])
    .addHelpText("after", examples.replaceAll("COMMAND", path));
  if (words !== "") command.argument(words, "", parseWord);
  return command.action((...parts: readonly unknown[]) => {
    const self = parts.at(-1) as Command;
    const word = words === "" ? undefined : (parts[0] as string | undefined);
    return ask(self.optsWithGlobals(), (transport) => run(transport, word, self.optsWithGlobals(), signal));
  });
}
