import { readFile } from "node:fs/promises";
import { isRecord } from "@kpng/model/narrowing.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import type { Command, Option } from "commander";
import { BackendError } from "../types/backend-error.ts";
import { configFields, type FieldRule, type FieldRules, type FieldType, type ProxyMode } from "./config-fields.ts";

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
 * and the program `kpng` call it for backends with a proxy mode.
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
    const { parse: parseYaml } = await import("yaml");
    const config = readConfig(parseYaml(await readFile(path, "utf8")), proxyMode);
    if (config.mode === "" || config.mode === proxyMode) return config;
    throw new BackendError("BAD_CONFIG", `mode is ${config.mode}, and this backend is ${proxyMode}`);
  } catch (cause) {
    const reason = reasonOf(cause).replace(/^\[BAD_CONFIG\] /, "");
    // The log adds causes to the message; our own error as a cause would be logged twice.
    throw new BackendError("BAD_CONFIG", `--config ${path}: ${reason}`, cause instanceof BackendError ? {} : { cause });
  }
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

/** Value of a field that sets an option. */
export interface Setting {
  /** *Shape:* `iptables.masqueradeAll`. */
  readonly field: string;
  /** Options for the field; the first that the backend has gets the value. */
  readonly flags: readonly string[];
  /** Value in the form of the command line; "true" or "false" for a boolean. */
  readonly text: string;
}

/** Content of a KubeProxyConfiguration. */
interface ProxyConfig {
  /** "" if the file has no mode. */
  readonly mode: ProxyMode | "";
  readonly settings: readonly Setting[];
  /** Ignored fields that have a value, with the reason. */
  readonly unsupported: readonly { readonly field: string; readonly reason: string }[];
}

const configApiVersion = "kubeproxy.config.k8s.io/v1alpha1";

const modes: readonly string[] = ["", "iptables", "ipvs", "nftables", "kernelspace"];

/**
 * Converts a parsed KubeProxyConfiguration to settings for a proxy with the mode `mode`.
 *
 * Zero values (null, "", 0, "0s", false, empty lists) count as absent unless the API distinguishes them, because the
 * file that kubeadm writes contains every field. Sections for other modes are checked but not used.
 *
 * Errors: BAD_CONFIG with every field that is unknown or has a value of the wrong type.
 */
export function readConfig(document: unknown, mode: string): ProxyConfig {
  if (!isRecord(document)) throw new BackendError("BAD_CONFIG", "the file does not contain an object");
  const { apiVersion, kind } = document;
  if (apiVersion !== configApiVersion || kind !== "KubeProxyConfiguration") {
    throw new BackendError(
      "BAD_CONFIG",
      `the file is ${String(apiVersion)} ${String(kind)}: expected ${configApiVersion} KubeProxyConfiguration`,
    );
  }
  const asked = document.mode ?? "";
  const reader = new Reader(mode);
  if (typeof asked !== "string" || !modes.includes(asked)) {
    reader.faults.push(`mode: ${JSON.stringify(asked)} is not one of iptables, ipvs, nftables`);
  }
  reader.read("", document, configFields);
  if (reader.faults.length > 0) throw new BackendError("BAD_CONFIG", reader.faults.join("; "));
  return { mode: asked as ProxyMode | "", settings: reader.settings, unsupported: reader.unsupported };
}

/** Walks through the sections of a document, and collects settings, ignored fields and faults. */
class Reader {
  readonly settings: Setting[] = [];
  readonly unsupported: { field: string; reason: string }[] = [];
  readonly faults: string[] = [];
  readonly #mode: string;

  constructor(mode: string) {
    this.#mode = mode;
  }

  read(path: string, values: Readonly<Record<string, unknown>>, rules: FieldRules): void {
    for (const [name, value] of Object.entries(values)) {
      const field = path === "" ? name : `${path}.${name}`;
      const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
      if (rule === undefined) this.faults.push(`${field}: unknown field`);
      else this.#readField(field, value, rule);
    }
  }

  #readField(field: string, value: unknown, rule: FieldRule): void {
    switch (rule.kind) {
      case "head":
        return;
      case "unsupported":
        if (!isZero(value) && value !== rule.standard) this.unsupported.push({ field, reason: rule.reason });
        return;
      case "section":
        if (isRecord(value)) this.#readSection(field, value, rule.fields, rule.mode);
        else if (value !== null) this.faults.push(`${field}: expected fields`);
        return;
      case "option":
        if (value === null || (isZero(value) && rule.isZeroMeant !== true)) return;
        this.#readOption(field, value, rule.type, rule.flags);
        return;
    }
  }

  #readSection(
    field: string,
    value: Readonly<Record<string, unknown>>,
    fields: FieldRules,
    mode: ProxyMode | undefined,
  ): void {
    const before = this.settings.length;
    this.read(field, value, fields);
    if (mode === undefined || mode === this.#mode) return;
    const isAlsoRead = ({ field: path }: Setting): boolean => {
      const rule = fields[path.slice(field.length + 1)];
      return rule?.kind === "option" && rule.alsoIn === this.#mode;
    };
    this.settings.push(...this.settings.splice(before).filter(isAlsoRead));
  }

  #readOption(field: string, value: unknown, type: FieldType, flags: readonly string[]): void {
    const text = toText(value, type);
    if (text === undefined) this.faults.push(`${field}: ${JSON.stringify(value)} is not ${described[type]}`);
    else this.settings.push({ field, flags, text });
  }
}

const described: Readonly<Record<FieldType, string>> = {
  text: "a string",
  boolean: "true or false",
  number: "a whole number",
  duration: 'a duration such as "30s"',
  texts: "a list of strings",
  "healthz-address": "an address",
  "metrics-address": "an address",
};

/** Returns a value in the form of the command line; undefined if it has the wrong type. */
function toText(value: unknown, type: FieldType): string | undefined {
  switch (type) {
    case "text":
    case "duration":
      return typeof value === "string" ? value : undefined;
    case "boolean":
      return typeof value === "boolean" ? String(value) : undefined;
    case "number":
      return Number.isInteger(value) ? String(value) : undefined;
    case "texts":
      return Array.isArray(value) && value.every((item) => typeof item === "string") ? value.join(",") : undefined;
    case "healthz-address":
      return typeof value === "string" ? withPort(value, 10_256) : undefined;
    case "metrics-address":
      return typeof value === "string" ? withPort(value, 10_249) : undefined;
  }
}

/** Adds the standard port to an address without one, as kube-proxy does. */
function withPort(address: string, port: number): string {
  if (/^[^:]*:\d+$|\]:\d+$/.test(address)) return address;
  return address.includes(":") ? `[${address.replace(/^\[|\]$/g, "")}]:${port}` : `${address}:${port}`;
}

function isZero(value: unknown): boolean {
  if (value === null || value === false || value === 0) return true;
  if (typeof value === "string") return value === "" || /^0+(\.0+)?(ns|us|µs|ms|s|m|h)?$/.test(value);
  if (Array.isArray(value)) return value.length === 0;
  return isRecord(value) && Object.values(value).every(isZero);
}
