import type { Transport } from "@connectrpc/connect";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Options } from "../commands/context.ts";

/** A command that asks a watcher: one elsewhere, or one in this process, `kpng NAME` or `kpng SOURCE NAME`. */
export interface ClientCommand {
  readonly name: string;
  readonly aliases?: readonly string[] | undefined;
  readonly description: string;
  /** As commander writes them, e.g. "[name]"; "" for none. */
  readonly words: string;
  /** Takes or refuses the word, if there is one; throws InvalidArgumentError. Default: takes any. */
  readonly parseWord?: ((text: string) => string) | undefined;
  readonly options: readonly OptionSpec[];
  /** COMMAND stands for the words that lead here. */
  readonly examples: string;
  run(transport: Transport, word: string | undefined, options: Options, signal: AbortSignal): Promise<void>;
}
