import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import type { OptionSpec } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Options } from "../../context/command-context.ts";
import { printRows, readOutputOptions, type TableSpec, WatchPrinter } from "../print/output.ts";
import { type InspectClient, inspectClient, pageSize, readPages } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";

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
 * Makes the action of a list command: prints the rows once, or the rows and their changes with `--watch`. The commands
 * `kpng get …` and `kpng trace` use it.
 *
 * Errors of the action: REQUEST_FAILED if the argument matches no row.
 *
 * Each list command is a file of its own in this folder and passes its differences to this function.
 */
export function runList<
  D extends DescMessage,
  F extends object,
  P extends { readonly nextPageToken: string },
  W extends { readonly revision: bigint; readonly deleted?: readonly (string | bigint)[] },
>({ noun, table, filterOf, list, watch, rowsOf }: List<D, F, P, W>): InspectCommand["run"] {
  return async (transport, argument, options, signal) => {
    const client = inspectClient(transport);
    const output = readOutputOptions(options);
    const filter = filterOf(argument, options);
    if (options.watch === true) {
      const printer = new WatchPrinter(table, output);
      for await (const message of watch(client, filter, { signal })) {
        printer.print(rowsOf(message), (message.deleted ?? []).map(String));
      }
      return;
    }
    const rows = await readPages<P, MessageShape<D>>(
      (pageToken) => list(client, { pageSize, ...filter, pageToken }),
      rowsOf,
    );
    if (rows.length === 0 && argument !== undefined) {
      throw new ProcessError("REQUEST_FAILED", `${noun} "${argument}" not found`);
    }
    printRows(table, rows, output);
    if (rows.length === 0) warnEmpty(noun);
  };
}

/** Prints on standard error that a list is empty, because a table without rows is not printed. */
export function warnEmpty(noun: string): void {
  process.stderr.write(`no ${noun}s found\n`);
}

/** The option of every list that can be watched. */
export const watchOption: OptionSpec = { flags: "-w, --watch", description: "after the list, print changes" };
