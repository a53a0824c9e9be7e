import { type OptionSpec, parseDurationMs } from "@kpng/process/options.ts";
import { standardStaleAfterMs } from "@kpng/watcher/source/probe-server.ts";
import type { Options } from "../context/command-context.ts";

/** Option of the sources that read from a server: when the state may be out of date. `kube` and `api` share it. */
export const staleOption: OptionSpec = {
  flags: "--stale-after <duration>",
  description: "time without an answer of the server after which the state counts as out of date",
  parse: parseDurationMs,
  default: standardStaleAfterMs,
};

/** The value of {@link staleOption}, in milliseconds. */
export function readStaleAfterMs(options: Options): number {
  return options.staleAfter as number;
}
