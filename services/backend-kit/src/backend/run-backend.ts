import { Health } from "@kpng/process/health/health.ts";
import { createLog, type LogLevel } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import { answersByExitCode } from "@kpng/process/run/exit-code.ts";
import { runProcess } from "@kpng/process/run/run-process.ts";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import { formatVersion } from "@kpng/process/run/version.ts";
import { readClientTls } from "@kpng/process/tls-files.ts";
import { readTokenFile } from "@kpng/process/token-file.ts";
import { withTracing } from "@kpng/process/trace/open-tracing.ts";
import { Command } from "commander";
import { Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import { acceptConfigFile } from "../config/config-file.ts";
import { type ParsedOptions, textOption } from "../types/parsed-options.ts";
import type { BackendCommand } from "./backend-command.ts";
import { backendOptions } from "./backend-options.ts";
import { type BackendCallbacks, backendTask } from "./backend-task.ts";
import { prepareBackend } from "./prepare-backend.ts";

/** Options of {@link runBackend}. */
export type RunBackendOptions = BackendCallbacks & {
  /** Name of the backend: lower-case letters, digits, dashes. The program is shown as `kpng-NAME`. */
  readonly name: string;
  /** One line for `--help`. */
  readonly description?: string | undefined;
  /** Text of `--version`. Default: the version of this library, named as such. */
  readonly version?: string | undefined;
  /** Command line. Default process.argv. */
  readonly argv?: readonly string[] | undefined;
};

/**
 * Makes this process a backend: parses the command line, follows the view of the node and calls back. Ends the process
 * with exit status 0 after SIGTERM, SIGINT or `--once`, 1 after a permanent failure, 2 for an invalid command line.
 * Backends outside this repository call it; one with options of its own calls {@link runBackendCommand}.
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
    options: [],
    examples: "",
    makeTask: (_parsed, context) => backendTask({ ...options, ...context }),
  };
  return runBackendCommand(command, options.argv, version);
}

/**
 * Runs a backend as a program of its own, with its options and the shared ones; ends the process like `runBackend`. The
 * `main.ts` of each backend calls it.
 */
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
    const { proxyMode, isQuestion } = backend;
    if (isQuestion !== undefined) answersByExitCode(command, isQuestion);
    if (proxyMode !== undefined) acceptConfigFile(command, { proxyMode, log: createLog() });
    command.addHelpText("after", backend.examples.replaceAll("COMMAND", program));
    command.action((options: ParsedOptions) => serveBackend(backend, options, signal));
    return command;
  }, argv);
}

async function serveBackend(backend: BackendCommand, options: ParsedOptions, signal: AbortSignal): Promise<void> {
  const log = createLog(options.logLevel as LogLevel);
  const health = new Health();
  const metrics = new Registry();
  const [key, crt, ca] = ["tlsKey", "tlsCrt", "tlsCa"].map((name) => textOption(options, name));
  const tls = readClientTls({ key, crt, ca });
  const token = readTokenFile(textOption(options, "tokenFile"));
  const traced = { name: `kpng-${backend.name}`, version: packageJson.version };
  await withTracing(traced, log, async (tracing) => {
    const { main, beside } = prepareBackend(backend, options, { log, health, metrics, tracing, tls, token });
    await runWithMain(main, beside, signal);
  });
}
