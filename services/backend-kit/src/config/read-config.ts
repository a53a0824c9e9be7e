import { isRecord } from "@kpng/model/is-record.ts";
import { BackendError } from "../types/backend-error.ts";
import { configFields, type FieldRule, type FieldRules, type FieldType, type ProxyMode } from "./config-fields.ts";

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
export interface ProxyConfig {
  /** "" if the file has no mode. */
  readonly mode: ProxyMode | "";
  readonly settings: readonly Setting[];
  /** Ignored fields that have a value, with the reason. */
  readonly unsupported: readonly { readonly field: string; readonly reason: string }[];
}

const configApiVersion = "kubeproxy.config.k8s.io/v1alpha1";

const modes: readonly string[] = ["", "iptables", "ipvs", "nftables", "kernelspace"];

/**
 * Converts a parsed KubeProxyConfiguration to settings for a proxy with the mode `mode`. Called by `readConfigFile`.
 * Separate from it, because reading the file is not pure and setting options needs the command line.
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
