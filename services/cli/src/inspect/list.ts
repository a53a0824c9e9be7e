import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { type ApplyState, ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type OptionSpec, parseNodeName, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../context/command-context.ts";
import { type InspectClient, type InspectCommand, inspectClient, keepAsking, readPages } from "./client.ts";
import { printMessage, printRows, readOutputOptions, WatchPrinter } from "./print/output.ts";
import { enumWords, type TableSpec } from "./print/text.ts";

/** A list of rows that can also be watched. `P` is a page of the list, `W` a message of the watch. */
interface List<D extends DescMessage, F, P, W> {
  /** One row, in messages: "Service". */
  readonly noun: string;
  readonly table: TableSpec<D>;
  readonly filterOf: (argument: string | undefined, options: Options) => F;
  readonly list: (
    client: InspectClient,
    request: F & { readonly pageSize: number; readonly pageToken: string },
  ) => Promise<P>;
  readonly watch: (client: InspectClient, filter: F, call: CallOptions) => AsyncIterable<W>;
  readonly rowsOf: (message: P | W) => readonly MessageShape<D>[];
}

/**
 * Makes the action of a list command: prints the rows once, or the rows and their changes with `--watch`.
 *
 * Errors of the action: REQUEST_FAILED if a name matches no row; the rows of the other names are printed.
 */
export function runList<
  D extends DescMessage,
  F extends object,
  P extends { readonly nextPageToken: string },
  W extends { readonly revision: bigint; readonly deleted?: readonly (string | bigint)[] },
>({ noun, table, filterOf, list, watch, rowsOf }: List<D, F, P, W>): InspectCommand["run"] {
  return async (transport, words, options, signal) => {
    const client = inspectClient(transport);
    const output = readOutputOptions(options);
    if (options.watch === true) {
      if (words.length > 1) throw new ProcessError("BAD_OPTION", "--watch follows one name or all, not several names");
      const printer = new WatchPrinter(table, output);
      return keepAsking(signal, async (answered) => {
        for await (const message of watch(client, filterOf(words[0], options), { signal })) {
          answered();
          printer.print(rowsOf(message), (message.deleted ?? []).map(String));
        }
        return false;
      });
    }
    const lists = await Promise.all(
      (words.length === 0 ? [undefined] : words).map(async (word) => {
        const filter = filterOf(word, options);
        const readPage = (request: Parameters<typeof list>[1]): Promise<P> => list(client, request);
        return { word, rows: await readPages(readPage, filter, rowsOf) };
      }),
    );
    const rows = lists.flatMap((one) => one.rows);
    const missing = lists.flatMap(({ word, rows: matches }) =>
      word !== undefined && matches.length === 0 ? [word] : [],
    );
    const [row] = rows;
    if (words.length === 1 && rows.length === 1 && row !== undefined && output.format === "json")
      printMessage(table.schema, row, output);
    else if (rows.length > 0 || missing.length === 0) printRows(table, rows, output);
    if (missing.length > 0) throw new ProcessError("REQUEST_FAILED", describeMissing(noun, missing, options));
    if (rows.length === 0) warnEmpty(noun);
  };
}

/** Returns an error text in kubectl's words: `Service "web" not found in namespace "shop"`. */
function describeMissing(noun: string, names: readonly string[], { namespace }: Options): string {
  const place = typeof namespace === "string" && namespace !== "" ? ` in namespace "${namespace}"` : "";
  return `${noun} "${names.join('", "')}" not found${place}`;
}

/** Prints on standard error that a list is empty, because a table without rows is not printed. */
export function warnEmpty(noun: string): void {
  process.stderr.write(`no ${noun}s found\n`);
}

/** The option of every list that can be watched. */
export const watchOption: OptionSpec = {
  flags: "-w, --watch",
  description: "after the list, print changes",
  env: false,
};

/**
 * Accepts the value of a filter, such as `--namespace`, unless it is empty. An empty filter would select everything,
 * which is a surprise if a script passes an unset variable.
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

/** Options that select the rows of one namespace, or of all, which is the default but what people know from kubectl. */
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
  aliases: ["--node-name"],
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

const stateNames: ReadonlyMap<string, ApplyState> = enumWords(ApplyStateSchema);

const stateWords = [...stateNames.keys()].join(", ");

const stateOption = repeatable("--state <state>", `only this state: ${stateWords}`);

/** Options that select nodes and subscribers by the revision that they have applied. */
export const applyFilterOptions: readonly OptionSpec[] = [
  {
    flags: "--not-applied <revision>",
    description: "only if this revision is not applied",
    default: 0,
    parse: parseWholeNumber("--not-applied", 1, Number.MAX_SAFE_INTEGER),
  },
  {
    ...stateOption,
    parse: (text, previous) => {
      parseFilter(text);
      const wrong = text.split(",").find((state) => state !== "" && !stateNames.has(state));
      if (wrong !== undefined) throw new InvalidArgumentError(`unknown state "${wrong}": expected ${stateWords}`);
      return stateOption.parse?.(text, previous);
    },
  },
];

/** The values of {@link applyFilterOptions}, as fields of a request. */
export function applyFilterOf(options: Options): { notAppliedRevision: bigint; states: ApplyState[] } {
  return {
    notAppliedRevision: BigInt(Number(options.notApplied)),
    states: (options.state as readonly string[]).flatMap((name) => stateNames.get(name) ?? []),
  };
}
