import { type OptionSpec, parseNodeName, parseWholeNumber } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../../context/command-context.ts";

/**
 * Accepts the value of a filter, such as `--namespace`, unless it is empty. An empty filter would select everything,
 * which is a surprise if a script passes an unset variable.
 *
 * The commands `get`, `describe`, `explain` and `trace` use the functions and options of this file. Separate from them,
 * because each is used by several of them.
 */
export function parseFilter(text: string): string {
  if (text.trim() === "") throw new InvalidArgumentError("the value is empty; omit it to select all");
  return text;
}

/** Accepts `name` or `namespace/name`. */
export function parseServiceName(text: string): string {
  parseFilter(text);
  const [service = "", port] = text.split(":");
  if (port !== undefined)
    throw new InvalidArgumentError(
      `a port is part of a packet: kpng explain --node NODE ${text}; here write ${service}`,
    );
  if (/^[^/\s]+(\/[^/\s]+)?$/.test(text)) return text;
  throw new InvalidArgumentError("expected a Service as name or namespace/name");
}

/** Accepts `namespace/name`. */
export function parseServiceKey(text: string): string {
  if (/^[^/\s]+\/[^/\s]+$/.test(text)) return text;
  throw new InvalidArgumentError("expected a Service as namespace/name");
}

/** Option that selects the rows of one namespace. */
export const namespaceOption: OptionSpec = {
  flags: "-n, --namespace <name>",
  description: "only this namespace (default: all)",
  default: "",
  parse: (text) => {
    parseFilter(text);
    if (/^[^/\s]+$/.test(text)) return text;
    throw new InvalidArgumentError('expected the name of a namespace, without "/"');
  },
};

/** Option that selects the rows of all namespaces, which is the default. People who know kubectl type it. */
export const allNamespacesOption: OptionSpec = {
  flags: "-A, --all-namespaces",
  description: "all namespaces: the default",
};

/** Option that selects the rows of one Service. */
export const serviceFilterOption: OptionSpec = {
  flags: "--service <name>",
  description: "only this Service: name or namespace/name",
  default: "",
  parse: parseServiceName,
};

/** Option that selects the rows of one node. */
export const nodeFilterOption: OptionSpec = {
  flags: "--node <name>",
  description: "only this node",
  default: "",
  parse: parseNodeName,
};

/** Option that limits how many changes are printed. */
export const limitOption: OptionSpec = {
  flags: "--limit <count>",
  description: "maximum number of changes, newest first",
  default: 20,
  parse: parseWholeNumber("--limit", 1, 1_000),
};

/**
 * Combines the argument that `parseServiceName` accepted, if there is one, with `--namespace`.
 *
 * Errors: BAD_OPTION if they name different namespaces, or with `--namespace` and `--all-namespaces`.
 */
export function splitName(argument: string | undefined, options: Options): { namespace: string; name: string } {
  const [first = "", second] = (argument ?? "").split("/");
  const namespace = String(options.namespace ?? "");
  if (options.allNamespaces === true && namespace !== "")
    throw new ProcessError("BAD_OPTION", `--namespace "${namespace}" and --all-namespaces exclude each other`);
  if (second === undefined) return { namespace, name: first };
  if (namespace === "" || namespace === first) return { namespace: first, name: second };
  throw new ProcessError("BAD_OPTION", `"${argument}" and --namespace "${namespace}" name different namespaces`);
}

/** Combines `--service` with `--namespace`. Errors: BAD_OPTION, as {@link splitName}. */
export function splitService(options: Options): { namespace: string; service: string } {
  const { namespace, name } = splitName(String(options.service ?? ""), options);
  return { namespace, service: name };
}

/** The value of `--service-proxy-name`; "" in `kpng SOURCE …`, where it is a list, which the watcher applies. */
export function readProxyName({ serviceProxyName }: Options): string {
  return typeof serviceProxyName === "string" ? serviceProxyName : "";
}
