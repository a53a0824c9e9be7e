import { type OptionSpec, parseDurationMs } from "@kpng/process/options.ts";
import { standardStaleAfterMs } from "@kpng/watcher/source/probe-server.ts";

/**
 * Option of the sources that read from a server: the time without an answer after which the state may be out of date.
 * `kubeCommand` and `apiCommand` share it, hence a file of its own; files and recordings have no server.
 */
export const staleOption: OptionSpec = {
  flags: "--stale-after <duration>",
  description: "time without an answer of the server after which the state counts as out of date",
  parse: parseDurationMs,
  default: standardStaleAfterMs,
};
