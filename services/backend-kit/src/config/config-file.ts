import { createReadStream } from "node:fs";
import type { Log } from "@kpng/process/log.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import type { Command, Option } from "commander";
import { BackendError } from "../types/backend-error.ts";
import { type ProxyConfig, readConfig, type Setting } from "./read-config.ts";

/** Options of {@link acceptConfigFile}. */
export interface ConfigFileOptions {
  /** Mode of the backend, e.g. "iptables". */
  readonly proxyMode: string;
  /** Log for ignored fields. */
  readonly log: Log;
}

/**
 * Adds the option `--config` to the command of a service proxy: a KubeProxyConfiguration file whose fields set the
 * options of the same meaning. The command line and the environment take precedence over the file. `runBackendCommand`
 * and the program `kpng` call it for backends with a proxy mode. Separate from `readConfig`, which interprets the
 * content of the file and is pure.
 *
 * The file is read before the command's action runs, which then may fail with BAD_CONFIG. A field that does not apply
 * to the backend is logged with the reason.
 */
export function acceptConfigFile(command: Command, { proxyMode, log }: ConfigFileOptions): void {
  addOptions(command, [
    {
      flags: "--config <file>",
      description: "KubeProxyConfiguration file (YAML); flags take precedence over its fields",
    },
  ]);
  command.hook("preAction", async (_command, acting) => {
    const path: unknown = acting.getOptionValue("config");
    if (typeof path !== "string") return;
    const config = await readConfigFile(path, proxyMode);
    for (const { field, reason } of config.unsupported) log.info("ignoring field of --config", { field, reason });
    for (const setting of config.settings) {
      const reason = applySetting(acting, setting);
      if (reason !== undefined) log.info("ignoring field of --config", { field: setting.field, reason });
    }
  });
}

/** Reads a KubeProxyConfiguration file. Errors: BAD_CONFIG if it cannot be read, is invalid, or has another mode. */
async function readConfigFile(path: string, proxyMode: string): Promise<ProxyConfig> {
  try {
    // Loaded only if needed, because the parser needs memory.
    const { parseDocument } = await import("yaml");
    const document = parseDocument(await readText(path));
    const error = document.errors[0];
    if (error?.code === "MULTIPLE_DOCS")
      throw new BackendError("BAD_CONFIG", "the file contains several YAML documents");
    if (error !== undefined) throw new BackendError("BAD_CONFIG", error.message);
    const config = readConfig(document.toJS(), proxyMode);
    if (config.mode === "" || config.mode === proxyMode) return config;
    throw new BackendError("BAD_CONFIG", `mode is ${config.mode}, and this backend is ${proxyMode}`);
  } catch (cause) {
    const reason = reasonOf(cause).replace(/^\[BAD_CONFIG\] /, "");
    // The log adds causes to the message; our own error as a cause would be logged twice.
    throw new BackendError("BAD_CONFIG", `--config ${path}: ${reason}`, cause instanceof BackendError ? {} : { cause });
  }
}

/**
 * Maximum size of the file, in bytes. kubeadm's file has 2 KiB; the parser needs a hundred times the size in memory.
 */
const maxConfigBytes = 1 << 20;

/** Reads a file up to the limit. The size is counted during reading, because a pipe or a device has no size. */
async function readText(path: string): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxConfigBytes) {
      throw new BackendError("BAD_CONFIG", `the file has more than ${maxConfigBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Sets the option for a field. Returns the reason if the backend does not have the option. */
function applySetting(command: Command, { field, flags, text }: Setting): string | undefined {
  const option = flags.map((flag) => command.options.find(({ long }) => long === flag)).find((found) => found);
  if (option === undefined) return `this backend has no option ${flags[0]}`;
  const name = option.attributeName();
  const source = command.getOptionValueSource(name);
  if (source === "cli" || source === "env") return undefined;
  command.setOptionValueWithSource(name, parse(option, field, text), "config");
  return undefined;
}

/**
 * Parses a value from the file as commander parses one of the command line. Errors: BAD_CONFIG with the name of the
 * field.
 */
function parse(option: Option, field: string, text: string): unknown {
  if (option.isBoolean()) return text === "true";
  if (option.parseArg === undefined) return text;
  try {
    return option.parseArg(text, option.defaultValue);
  } catch (cause) {
    throw new BackendError("BAD_CONFIG", `--config: ${field} ${JSON.stringify(text)}: ${reasonOf(cause)}`, { cause });
  }
}
