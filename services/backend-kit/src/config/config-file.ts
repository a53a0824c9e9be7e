import { createReadStream } from "node:fs";
import type { Log } from "@kpng/process/log.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import type { Command, Option } from "commander";
import { BackendError } from "../types/backend-error.ts";
import { type ProxyConfig, readConfig, type Setting } from "./read-config.ts";

export interface ConfigFileOptions {
  /** The backend's, e.g. "iptables". */
  readonly proxyMode: string;
  /** Takes the warnings. */
  readonly log: Log;
}

/**
 * Adds `--config` to a command: a KubeProxyConfiguration whose fields set the options of the same meaning. What stands
 * on the command line or in the environment wins over the file.
 *
 * The file is read before the command's action runs. Errors then: BAD_CONFIG. A field that has no meaning here is
 * logged with the reason.
 */
export function acceptConfigFile(command: Command, { proxyMode, log }: ConfigFileOptions): void {
  addOptions(command, [
    { flags: "--config <file>", description: "a KubeProxyConfiguration (YAML) for what no flag sets" },
  ]);
  command.hook("preAction", async (_command, acting) => {
    const path: unknown = acting.getOptionValue("config");
    if (typeof path !== "string") return;
    const config = await readConfigFile(path, proxyMode);
    for (const { field, reason } of config.unsupported) log.info("field of --config not heeded", { field, reason });
    for (const setting of config.settings) {
      const reason = applySetting(acting, setting);
      if (reason !== undefined) log.info("field of --config not heeded", { field: setting.field, reason });
    }
  });
}

/** Errors: BAD_CONFIG for a file that cannot be read or understood, or that is for another mode. */
export async function readConfigFile(path: string, proxyMode: string): Promise<ProxyConfig> {
  try {
    // Loaded here: the parser takes memory that a node without such a file does not have to pay.
    const { parseDocument } = await import("yaml");
    const document = parseDocument(await readText(path));
    const error = document.errors[0];
    if (error?.code === "MULTIPLE_DOCS") throw new BackendError("BAD_CONFIG", "the file holds several YAML documents");
    if (error !== undefined) throw new BackendError("BAD_CONFIG", error.message);
    const config = readConfig(document.toJS(), proxyMode);
    if (config.mode === "" || config.mode === proxyMode) return config;
    throw new BackendError("BAD_CONFIG", `mode is ${config.mode}, and this backend is ${proxyMode}`);
  } catch (cause) {
    const reason = reasonOf(cause).replace(/^\[BAD_CONFIG\] /, "");
    // A cause is told after the message: our own would be told twice.
    throw new BackendError("BAD_CONFIG", `--config ${path}: ${reason}`, cause instanceof BackendError ? {} : { cause });
  }
}

/**
 * Largest file that is read, in bytes. The one that kubeadm writes has 2 KiB; the parser takes a hundred times as much.
 */
const maxConfigBytes = 1 << 20;

/** Counted while it is read: a pipe or a device does not say how long it is. */
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

/** Sets the option of a field; returns why not. */
function applySetting(command: Command, { field, flags, text }: Setting): string | undefined {
  const option = flags.map((flag) => command.options.find(({ long }) => long === flag)).find((found) => found);
  if (option === undefined) return `this backend has no option ${flags[0]}`;
  const name = option.attributeName();
  const source = command.getOptionValueSource(name);
  if (source === "cli" || source === "env") return undefined;
  command.setOptionValueWithSource(name, parse(option, field, text), "config");
  return undefined;
}

function parse(option: Option, field: string, text: string): unknown {
  if (option.isBoolean()) return text === "true";
  if (option.parseArg === undefined) return text;
  try {
    return option.parseArg(text, option.defaultValue);
  } catch (cause) {
    throw new BackendError("BAD_CONFIG", `--config: ${field} ${JSON.stringify(text)}: ${reasonOf(cause)}`, { cause });
  }
}
