import { type OptionSpec, parseNodeName, parseWholeNumber } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../../context/command-context.ts";

/**
 * Takes a name that says which things are meant. An empty one, most often of a variable that is not set, is refused: it
 * would stand for all of them.
 */
export function parseFilter(text: string): string {
  if (text.trim() === "") throw new InvalidArgumentError("it is empty; leave it out for all");
  return text;
}

/** Takes `name` or `namespace/name`. */
export function parseServiceName(text: string): string {
  parseFilter(text);
  if (/^[^/\s]+(\/[^/\s]+)?$/.test(text)) return text;
  throw new InvalidArgumentError("a Service is written name or namespace/name");
}

export const namespaceOption: OptionSpec = {
  flags: "-n, --namespace <name>",
  description: "only of this namespace (default: all)",
  default: "",
  parse: (text) => {
    parseFilter(text);
    if (/^[^/\s]+$/.test(text)) return text;
    throw new InvalidArgumentError('a namespace is one name, without "/"');
  },
};

export const serviceFilterOption: OptionSpec = {
  flags: "--service <name>",
  description: "only of this Service: name or namespace/name",
  default: "",
  parse: parseServiceName,
};

export const nodeFilterOption: OptionSpec = {
  flags: "--node <name>",
  description: "only of this node",
  default: "",
  parse: parseNodeName,
};

export const limitOption: OptionSpec = {
  flags: "--limit <count>",
  description: "at most so many of the newest",
  default: 20,
  parse: parseWholeNumber("--limit", 1, 1_000),
};

/**
 * Reads what `parseServiceName` took, or "" for all, with `--namespace`.
 *
 * Errors: BAD_OPTION where the two name different namespaces.
 */
export function splitName(word: string | undefined, options: Options): { namespace: string; name: string } {
  const [first = "", second] = (word ?? "").split("/");
  const namespace = String(options.namespace ?? "");
  if (second === undefined) return { namespace, name: first };
  if (namespace === "" || namespace === first) return { namespace: first, name: second };
  throw new ProcessError("BAD_OPTION", `"${word}" and --namespace "${namespace}" name different namespaces`);
}

/** The same of the option `--service`. */
export function splitService(options: Options): { namespace: string; service: string } {
  const { namespace, name } = splitName(String(options.service ?? ""), options);
  return { namespace, service: name };
}

/** At a source the option names several, the first of which is the standard one. */
export function readProxyName({ serviceProxyName }: Options): string {
  return typeof serviceProxyName === "string" ? serviceProxyName : "";
}
