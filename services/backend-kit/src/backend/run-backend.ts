import { readCredentials } from "@kpng/process/credential-files.ts";
import { Health } from "@kpng/process/health/health.ts";
import { statusServerTasks } from "@kpng/process/health/status-server.ts";
import { createLog, type Log, type LogLevel, reasonOf } from "@kpng/process/log.ts";
import { addOptions, type OptionSpec } from "@kpng/process/options.ts";
import { growOldGenerationByHalf, keepYoungGenerationSmall } from "@kpng/process/run/memory.ts";
import { formatVersion, reportsByExitStatus, runProcess } from "@kpng/process/run/run-process.ts";
import type { Task } from "@kpng/process/task.ts";
import { runWithMain } from "@kpng/process/task.ts";
import { withTracing } from "@kpng/process/trace/open-tracing.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { Command } from "commander";
import { Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import { acceptConfigFile } from "../config/config-file.ts";
import { dialWatchers } from "../discovery/dial-watchers.ts";
import { ProxyHealth, proxyObserveTasks } from "../observe/proxy-health.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";
import type { BackendCommand, BackendContext } from "./backend-command.ts";
import { backendOptions, readFollowOptions } from "./backend-options.ts";
import { type BackendCallbacks, backendTask } from "./backend-task.ts";

export type RunBackendOptions = (BackendCallbacks | CallbacksFromOptions) & {
  /** Name of the backend: lower-case letters, digits, dashes. Help shows the program as `kpng-NAME`. */
  readonly name: string;
  /** One-line description for `--help`. */
  readonly description?: string | undefined;
  /** Output of `--version`. Default: the version of this library, labelled as such. */
  readonly version?: string | undefined;
  /** Command line to parse. Default process.argv. */
  readonly argv?: readonly string[] | undefined;
};

/** For a backend with command-line options of its own. */
export interface CallbacksFromOptions {
  /** Its options, in addition to those of every backend. */
  readonly options: readonly OptionSpec[];
  /** Returns the callbacks for the parsed options, e.g. `parsed.outputFile` for `--output-file <path>`. */
  readonly makeCallbacks: (parsed: ParsedOptions) => BackendCallbacks;
}

/**
 * Makes this process a backend: parses the command line, follows the view of the node and calls back. Ends the process
 * with exit status 0 after SIGTERM, SIGINT or `--once`, 1 after a permanent failure, 2 for an invalid command line.
 * This is the entry point for backends outside this repository; a service proxy calls {@link runBackendCommand} with a
 * `proxyBackend` instead.
 *
 * ```ts
 * await runBackend({ name: "hello", onState: (view) => console.log(view.services.size) });
 * ```
 */
export function runBackend(options: RunBackendOptions): Promise<never> {
  const {
    name,
    description = `kpng backend ${name}`,
    version = `of @kpng/backend-kit ${packageJson.version}`,
  } = options;
  const command: BackendCommand = {
    name,
    description,
    options: "options" in options ? options.options : [],
    examples: "",
    makeTask: (parsed, context) => {
      const callbacks = "makeCallbacks" in options ? options.makeCallbacks(parsed) : options;
      return backendTask({ ...callbacks, ...context, name });
    },
  };
  return runBackendCommand(command, options.argv, version);
}

/** Runs a backend as a separate program, with its own options and the shared ones; ends like `runBackend`. */
export function runBackendCommand(
  backend: BackendCommand,
  argv?: readonly string[],
  version = packageJson.version,
): Promise<never> {
  const program = `kpng-${backend.name}`;
  return runProcess((signal) => {
    const command = new Command(program)
      .description(backend.description)
      .version(formatVersion(program, version), "-V, --version", "print the version");
    addOptions(command, [...backend.options, ...backendOptions]);
    const { proxyMode, exitStatusIsResult } = backend;
    // Before the hook of --config, so that an invalid file exits with 2, a failure, and not with 1, a difference.
    if (exitStatusIsResult !== undefined) reportsByExitStatus(command, exitStatusIsResult);
    if (proxyMode !== undefined) acceptConfigFile(command, proxyMode, createLog());
    command.addHelpText("after", backend.examples.replaceAll("COMMAND", program));
    command.configureOutput({
      outputError: (text, write) => {
        const isOfKubeProxy = text.includes("'--hostname-override");
        write(isOfKubeProxy ? `${text.trimEnd()}\nHint: the node is named by --node-name\n` : text);
      },
    });
    command.action((options: ParsedOptions) => serveBackend(backend, options, signal));
    return command;
  }, argv);
}

/**
 * Runs a backend with the parsed values of `connectionOptions`, `followOptions`, `statusServerOptions` and its own
 * options, until it ends or `signal` aborts. Errors: BAD_OPTION, and those of its tasks.
 */
export async function serveBackend(
  backend: BackendCommand,
  options: ParsedOptions,
  signal: AbortSignal,
): Promise<void> {
  keepYoungGenerationSmall();
  growOldGenerationByHalf();
  const log = createLog(options.logLevel as LogLevel);
  const health = new Health();
  const metrics = new Registry();
  // A service proxy answers health probes as kube-proxy does; other backends answer with the health of the process.
  const proxyHealth = backend.proxyMode === undefined ? undefined : new ProxyHealth();
  const exitStatusIsResult = backend.exitStatusIsResult?.(options) === true;
  const follow = readFollowOptions(options);
  const api = String(options.api);
  const transport = dialWatchers({ ...readCredentials(options), api, maxMessageBytes: follow.maxMessageBytes, log });
  const traced = { name: `kpng-${backend.name}`, version: packageJson.version };
  await withTracing(traced, log, async (tracing) => {
    const parts = { log, health, metrics, proxyHealth };
    // `kubectl exec … -- kpng-nft --diff` inherits the environment of the running backend, which already uses these
    // addresses and this socket.
    const inspectSocket = exitStatusIsResult ? undefined : follow.inspectSocket;
    const main = backend.makeTask(options, { ...parts, ...follow, tracing, watcher: api, transport, inspectSocket });
    await runWithMain(main, exitStatusIsResult ? [] : statusTasks(backend, options, parts), signal);
  });
}

function statusTasks(
  backend: BackendCommand,
  options: ParsedOptions,
  { proxyHealth, ...parts }: Pick<BackendContext, "log" | "health" | "metrics" | "proxyHealth">,
): readonly Task[] {
  const mode = backend.proxyMode;
  const healthPort = options.once === true ? undefined : backend.healthPort?.(options);
  const given = textOption(options, "healthzBindAddress");
  const hasDefault = given === undefined && healthPort !== undefined;
  const addresses = {
    healthzBindAddress: (hasDefault ? `127.0.0.1:${healthPort}` : given) || undefined,
    metricsBindAddress: textOption(options, "metricsBindAddress") || undefined,
  };
  const tasks =
    mode === undefined || proxyHealth === undefined
      ? statusServerTasks(addresses, parts)
      : proxyObserveTasks(addresses, { ...parts, proxyHealth, mode });
  const isUnasked = hasDefault && addresses.healthzBindAddress !== addresses.metricsBindAddress;
  // The task for health is the first one.
  return tasks.map((task, index) => (isUnasked && index === 0 ? withoutFailure(task, parts.log) : task));
}

/** Repeats a failed task: the default health port must not prevent a start, e.g. while an older process has it. */
function withoutFailure(task: Task, log: Log): Task {
  const run = async (signal: AbortSignal): Promise<void> => {
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        await task.run(signal);
      } catch (error) {
        const text = "health is not served: trying again, or give another --healthz-bind-address";
        if (attempt === 0) log.error(text, { reason: reasonOf(error) });
        await waitMs(healthRetryMs, signal);
      }
    }
  };
  return { name: task.name, run };
}

const healthRetryMs = 1_000;
