import type { Transport } from "@connectrpc/connect";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Options } from "../../context/command-context.ts";

/**
 * A command that queries a watcher: a remote one (`kpng NAME`) or one in this process (`kpng SOURCE NAME`). The files
 * of `inspect/` each export one; `makeInspect` and `makeInspectSource` pass them to `makeInspectCommand`, which makes a
 * command of commander. Separate, because all of these files use this type.
 */
export interface InspectCommand {
  readonly name: string;
  readonly aliases?: readonly string[] | undefined;
  readonly description: string;
  /** The argument as commander writes it, for example "[name...]"; absent for none. */
  readonly argument?: string | undefined;
  /** Checks each word of the argument; throws InvalidArgumentError. Default: accepts any. */
  readonly parseArgument?: ((text: string) => string) | undefined;
  readonly options: readonly OptionSpec[];
  /** Shown below the options; COMMAND stands for the words that lead to this command. */
  readonly examples: string;
  /** Performs the query. `words` are those of the argument. */
  run(transport: Transport, words: readonly string[], options: Options, signal: AbortSignal): Promise<void>;
}
