import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { type ApplyState, ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import {
  type OptionSpec,
  oneOf,
  parseNodeName,
  parseProxyName,
  parseWholeNumber,
  repeatable,
} from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../context/command-context.ts";
import { type InspectClient, type InspectCommand, keepAsking, type PageRequest, readPages } from "./client.ts";
import {
  outputOptions,
  printMessage,
  printRows,
  type RowChanges,
  readOutputOptions,
  watchPrinter,
} from "./print/output.ts";
import { enumWords, type TableSpec } from "./print/text.ts";

/**
 * A command that lists rows, and also watches them. `F` is the filter in a request, `P` a page of the list, `W` a
 * message of the watch.
 */
interface ListCommand<D extends DescMessage, F, P, W> extends Omit<InspectCommand, "run"> {
  /** Noun for one row in messages, e.g. "Service". */
  readonly noun: string;
  readonly table: TableSpec<D>;
  readonly filterOf: (argument: string | undefined, options: Options) => F;
  readonly list: (client: InspectClient, request: F & PageRequest) => Promise<P>;
  readonly watch: (client: InspectClient, filter: F, call: CallOptions) => AsyncIterable<W>;
  readonly rowsOf: (message: P | W) => readonly MessageShape<D>[];
  /** Returns the key of a row, by which watch messages name deleted rows. */
  readonly keyOf: (row: MessageShape<D>) => string;
}

/**
 * Returns a command that prints the rows once, or the rows and their changes with `--watch`.
 *
 * The command fails with REQUEST_FAILED if a name matches no row; the rows for the other names are printed all the same.
 */
export function listCommand<
  D extends DescMessage,
  F extends object,
  P extends { readonly nextPageToken: string },
  W extends { readonly revision: bigint; readonly deleted?: readonly (string | bigint)[] },
>({ noun, table, filterOf, list, watch, rowsOf, keyOf, ...command }: ListCommand<D, F, P, W>): InspectCommand {
  const run: InspectCommand["run"] = async ({ client, words, options, signal }) => {
    const output = await readOutputOptions(options);
    const selector = options.selector as LabelSelector | undefined;
    if (words.length > 0 && selector !== undefined)
      throw new ProcessError("BAD_OPTION", "give names or --selector, not both");
    if (options.watch === true) {
      if (words.length > 1) throw new ProcessError("BAD_OPTION", "--watch follows one name or all, not several names");
      const print = watchPrinter(table, output);
      const select = selector === undefined ? undefined : watchLabels(selector, keyOf);
      return keepAsking(signal, async (answered) => {
        for await (const message of watch(client, filterOf(words[0], options), { signal })) {
          answered();
          const change = { rows: rowsOf(message), deleted: (message.deleted ?? []).map(String) };
          print(select?.(change) ?? change);
        }
        return false;
      });
    }
    const readPage = (request: F & PageRequest): Promise<P> => list(client, request);
    const lists = await Promise.all(
      (words.length === 0 ? [undefined] : words).map((word) => readPages(readPage, filterOf(word, options), rowsOf)),
    );
    const all = lists.flat();
    const rows = selector === undefined ? all : all.filter((one) => selector(labelsOf(one)));
    const missing = words.filter((_, index) => lists[index]?.length === 0);
    const [row] = rows;
    // As in kubectl, JSON of one named object is the object itself, and of several a List.
    if (words.length === 1 && rows.length === 1 && row !== undefined && output.format === "json")
      printMessage(table.schema, row, output);
    else if (rows.length > 0 || missing.length === 0) printRows(table, rows, output);
    if (missing.length > 0) throw notFound(noun, missing.join('", "'), options);
    if (rows.length > 0) return;
    warnEmpty(noun);
    // None of the watcher's rows has a label, so the watcher probably drops labels.
    if (selector !== undefined && !all.some((one) => Object.keys(labelsOf(one)).length > 0)) {
      const option = `--with-${noun.toLowerCase()}-labels`;
      process.stderr.write(`Hint: this watcher keeps no label of a ${noun}; start it with ${option} '*'\n`);
    }
  };
  return { ...command, options: [...command.options, watchOption, ...outputOptions], run };
}

/** Returns an error in kubectl's wording: `Service "web" not found in namespace "shop"`. */
export function notFound(noun: string, name: string, { namespace }: Options): ProcessError {
  const place = typeof namespace === "string" && namespace !== "" ? ` in namespace "${namespace}"` : "";
  return new ProcessError("REQUEST_FAILED", `${noun} "${name}" not found${place}`);
}

export function warnEmpty(noun: string): void {
  process.stderr.write(`no ${noun}s found\n`);
}

const watchOption: OptionSpec = { flags: "-w, --watch", description: "after the list, print changes", env: false };

/** Refuses an empty filter, which comes from an unset variable of a script, and would select everything. */
export function parseFilter(text: string): string {
  if (text.trim() === "") throw new InvalidArgumentError("the value is empty; omit it to select all");
  return text;
}

/** Accepts `name` or `namespace/name`. */
export function parseServiceName(text: string): string {
  const [service = "", port] = text.split(":");
  const packet = `a port is part of a packet: kpng explain --node NODE ${text}; here write ${service}`;
  if (port !== undefined) throw new InvalidArgumentError(packet);
  if (/^[^/\s]+(\/[^/\s]+)?$/.test(text)) return text;
  throw new InvalidArgumentError("expected a Service as name or namespace/name");
}

/** Options that select a namespace. All is the default; `-A` exists because users know it from kubectl. */
export const namespaceOptions: readonly OptionSpec[] = [
  {
    flags: "-n, --namespace <name>",
    description: "only this namespace (default: all)",
    default: "",
    parse: (text) => {
      parseFilter(text);
      if (/^[^/\s]+$/.test(text)) return text;
      throw new InvalidArgumentError('expected the name of a namespace, without "/"');
    },
  },
  { flags: "-A, --all-namespaces", description: "all namespaces: the default" },
];

export const serviceFilterOption: OptionSpec = {
  flags: "--service <name>",
  description: "only this Service: name or namespace/name",
  default: "",
  parse: parseServiceName,
};

export function nodeOption(description: string, standard?: string): OptionSpec {
  return { flags: "--node <name>", aliases: ["--node-name"], description, default: standard, parse: parseNodeName };
}

export const nodeFilterOption: OptionSpec = nodeOption("only this node", "");

export const limitOption: OptionSpec = {
  flags: "--limit <count>",
  description: "maximum number of changes, newest first",
  default: 20,
  parse: parseWholeNumber("--limit", 1, 1_000),
};

/** Combines the argument, if any, with `--namespace`. Errors: BAD_OPTION for different namespaces. */
export function splitName(argument: string | undefined, options: Options): { namespace: string; name: string } {
  const [first = "", second] = (argument ?? "").split("/");
  const namespace = String(options.namespace ?? "");
  if (options.allNamespaces === true && namespace !== "")
    throw new ProcessError("BAD_OPTION", `--namespace "${namespace}" and --all-namespaces exclude each other`);
  if (second === undefined) return { namespace, name: first };
  if (namespace === "" || namespace === first) return { namespace: first, name: second };
  throw new ProcessError("BAD_OPTION", `"${argument}" and --namespace "${namespace}" name different namespaces`);
}

/** Combines `--service` with `--namespace`; see {@link splitName}. */
export function splitService(options: Options): { namespace: string; service: string } {
  const { namespace, name } = splitName(String(options.service ?? ""), options);
  return { namespace, service: name };
}

/** For commands that do not follow a source; a source has this option itself. */
export const proxyNameOption: OptionSpec = {
  flags: "--service-proxy-name <name>",
  description: "only Services with this value of the label service.kubernetes.io/service-proxy-name",
  default: "",
  parse: parseProxyName,
};

/** Returns the value of {@link proxyNameOption}; "" in `kpng SOURCE …`, where the watcher applies a list of names. */
export function readProxyName({ serviceProxyName }: Options): string {
  return typeof serviceProxyName === "string" ? serviceProxyName : "";
}

/** Returns true if an object with these labels is selected. */
type LabelSelector = (labels: Readonly<Record<string, string>>) => boolean;

export const labelSelectorOption: OptionSpec = {
  flags: "-l, --selector <labels>",
  description: "only objects with these labels, as in kubectl: a=b, a!=b, a, !a, a in (b,c), a notin (b,c)",
  parse: parseLabelSelector,
};

const name = "[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?";
const value = "(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?";
const setCondition = new RegExp(String.raw`^(${name})\s+(in|notin)\s*\(([^()]*)\)$`);
const equalCondition = new RegExp(`^(${name})\\s*(==|=|!=)\\s*(${value})$`);
const presence = new RegExp(String.raw`^(!?)\s*(${name})$`);

/**
 * Parses a label selector as kubectl does. An object without the label `a` matches `a!=b` and `a notin (b)`.
 *
 * Errors: InvalidArgumentError, which contains the invalid part. Source: k8s.io/apimachinery `labels.Parse`.
 */
export function parseLabelSelector(text: string): LabelSelector {
  // Commas inside parentheses separate values.
  const conditions = text.split(/,(?![^(]*\))/).map((part) => parseLabelCondition(part.trim()));
  return (labels) => conditions.every((condition) => condition(labels));
}

function parseLabelCondition(text: string): LabelSelector {
  const [, setName, how, list] = setCondition.exec(text) ?? [];
  if (setName !== undefined) {
    const values: readonly (string | undefined)[] = (list ?? "").split(",").map((one) => one.trim());
    return (labels) => values.includes(labels[setName]) === (how === "in");
  }
  const [, equalName, operator, value = ""] = equalCondition.exec(text) ?? [];
  if (equalName !== undefined) return (labels) => (labels[equalName] === value) === (operator !== "!=");
  const [, not, label] = presence.exec(text) ?? [];
  if (label !== undefined) return (labels) => Object.hasOwn(labels, label) === (not === "");
  throw new InvalidArgumentError(
    `"${text}" is not a label selector: write a=b, a!=b, a, !a, a in (b,c) or a notin (b)`,
  );
}

/**
 * Returns a function that selects rows from the messages of a watch by their labels, because requests have no field for
 * labels. A row that no longer matches counts as deleted; one that never matched is not reported as deleted.
 */
export function watchLabels<T extends object>(selector: LabelSelector, keyOf: (row: T) => string) {
  const shown = new Set<string>();
  return ({ rows, deleted }: RowChanges<T>): RowChanges<T> => {
    const { selected = [], other = [] } = Object.groupBy(rows, (row) =>
      selector(labelsOf(row)) ? "selected" : "other",
    );
    const gone = [...deleted, ...other.map(keyOf)].filter((key) => shown.delete(key));
    for (const row of selected) shown.add(keyOf(row));
    return { rows: selected, deleted: gone };
  };
}

/** Returns the labels of a row; an empty object for rows of a kind without labels. */
function labelsOf(row: object): Readonly<Record<string, string>> {
  return "labels" in row ? (row.labels as Readonly<Record<string, string>>) : {};
}

const stateNames: ReadonlyMap<string, ApplyState> = enumWords(ApplyStateSchema);

export const stateOption: OptionSpec = repeatable(
  "--state <state>",
  `only this state: ${[...stateNames.keys()].join(", ")}`,
  [],
  (text) => text.split(",").forEach(oneOf([...stateNames.keys()])),
);

/** Returns the values of {@link stateOption}. */
export function statesOf({ state }: Options): ApplyState[] {
  return (state as readonly string[]).flatMap((name) => stateNames.get(name) ?? []);
}
