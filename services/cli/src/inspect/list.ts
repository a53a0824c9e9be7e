import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import type { OptionSpec } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Options } from "../context/command-context.ts";
import { printRows, readOutputOptions, WatchPrinter } from "./print/output.ts";
import type { TableSpec } from "./print/table.ts";
import {
  type InspectClient,
  type InspectCommand,
  inspectClient,
  keepAsking,
  pageSize,
  readPages,
} from "./query/client.ts";
import { labelsOf, RowSelection } from "./query/filters.ts";

/** A list of rows that can also be watched. `P` is a page of the list, `W` a message of the watch. */
interface List<D extends DescMessage, F, P, W> {
  /** One row, in messages: "Service". */
  readonly noun: string;
  readonly table: TableSpec<D>;
  readonly filterOf: (argument: string | undefined, options: Options) => F;
  /** Checks options that only the watcher can judge. Errors: BAD_OPTION. */
  readonly check?: ((client: InspectClient, options: Options) => Promise<void>) | undefined;
  readonly list: (
    client: InspectClient,
    request: F & { readonly pageSize: number; readonly pageToken: string },
  ) => Promise<P>;
  readonly watch: (client: InspectClient, filter: F, call: CallOptions) => AsyncIterable<W>;
  readonly rowsOf: (message: P | W) => readonly MessageShape<D>[];
  /** Key of a row, as a message of the watch names deleted rows. */
  readonly keyOf: (row: MessageShape<D>) => string;
}

/**
 * Makes the action of a list command: prints the rows once, or the rows and their changes with `--watch`.
 *
 * The commands `changes`, `endpoints`, `nodes`, `services` and `subscribers` of this folder call it.
 *
 * Errors of the action: REQUEST_FAILED if a name matches no row; the rows of the other names are printed.
 */
export function runList<
  D extends DescMessage,
  F extends object,
  P extends { readonly nextPageToken: string },
  W extends { readonly revision: bigint; readonly deleted?: readonly (string | bigint)[] },
>({ noun, table, filterOf, check, list, watch, rowsOf, keyOf }: List<D, F, P, W>): InspectCommand["run"] {
  return async (transport, words, options, signal) => {
    const client = inspectClient(transport);
    const output = await readOutputOptions(options);
    const selection = new RowSelection<MessageShape<D>>(options);
    if (words.length > 0 && !selection.isAll)
      throw new ProcessError("BAD_OPTION", "give names or --selector, not both");
    await check?.(client, options);
    if (options.watch === true) {
      if (words.length > 1) throw new ProcessError("BAD_OPTION", "--watch follows one name or all, not several names");
      const printer = new WatchPrinter(table, output);
      return keepAsking(signal, async (answered) => {
        for await (const message of watch(client, filterOf(words[0], options), { signal })) {
          answered();
          const { rows, deleted } = selection.follow(rowsOf(message), (message.deleted ?? []).map(String), keyOf);
          printer.print(rows, deleted);
        }
        return false;
      });
    }
    const lists = await Promise.all(
      (words.length === 0 ? [undefined] : words).map(async (word) => {
        const filter = filterOf(word, options);
        const readPage = (pageToken: string): Promise<P> => list(client, { pageSize, ...filter, pageToken });
        return { word, rows: await readPages<P, MessageShape<D>>(readPage, rowsOf) };
      }),
    );
    const all = lists.flatMap((one) => one.rows);
    const rows = selection.keep(all);
    const missing = lists.flatMap(({ word, rows: found }) => (word !== undefined && found.length === 0 ? [word] : []));
    if (rows.length > 0 || missing.length === 0) printRows(table, rows, output);
    if (missing.length > 0) throw new ProcessError("REQUEST_FAILED", describeMissing(noun, missing, options));
    if (rows.length === 0) warnEmpty(noun);
    if (rows.length === 0 && !selection.isAll && !all.some((row) => Object.keys(labelsOf(row)).length > 0))
      warnNoLabels(noun);
  };
}

/** Returns an error text in kubectl's words: `Service "web" not found in namespace "shop"`. */
function describeMissing(noun: string, names: readonly string[], { namespace }: Options): string {
  const place = typeof namespace === "string" && namespace !== "" ? ` in namespace "${namespace}"` : "";
  const separated = names.find((name) => name.includes(","))?.replaceAll(",", " ");
  const hint = separated === undefined ? "" : `\nHint: names are separated by spaces: ${separated}`;
  return `${noun} "${names.join('", "')}" not found${place}${hint}`;
}

/** Prints on standard error that a list is empty, because a table without rows is not printed. */
export function warnEmpty(noun: string): void {
  process.stderr.write(`no ${noun}s found\n`);
}

function warnNoLabels(noun: string): void {
  const option = `--with-${noun.toLowerCase()}-labels`;
  process.stderr.write(`Hint: this watcher keeps no label of a ${noun}; start it with ${option} '*'\n`);
}

/** The option of every list that can be watched. */
export const watchOption: OptionSpec = { flags: "-w, --watch", description: "after the list, print changes" };
