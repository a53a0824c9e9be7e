import { type OptionSpec, parseDurationMs, parseProxyName, repeatable } from "@kpng/process/options.ts";
import { type DecodeOptions, defaultNodeLabels, makeDecodeOptions } from "@kpng/source/decode/decoded.ts";
import type { KubeConnection } from "@kpng/source/kube/connection.ts";
import { standardStaleAfterMs } from "@kpng/source/probe-server.ts";
import type { ClusterSink, Source } from "@kpng/source/source.ts";
import { type Command, InvalidArgumentError } from "commander";
import type { CommandContext, Options } from "../context/command-context.ts";

/** A command that reads the cluster's objects from some source: `kpng NAME to-…`. */
export interface SourceCommand {
  readonly name: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** True if the objects come from a server, which may be unreachable. Default false. */
  readonly asksServer?: boolean | undefined;
  /** Commands beside the sinks. Default: none. */
  readonly more?: ((signal: AbortSignal) => readonly Command[]) | undefined;
  /** Connects to the API server; undefined if the command has no options for that. */
  readonly connect?: ((options: Options) => Promise<KubeConnection>) | undefined;
  /** Returns the source. `options.isQuery` is true for `kpng SOURCE get` and other queries, which `makeSource` adds. */
  make(options: Options, sink: ClusterSink, context: CommandContext): Source;
}

/** Option that selects the Services to serve. As in KPNG, it is an option of every source, not of the sinks. */
export const proxyNameOption: OptionSpec = repeatable(
  "--service-proxy-name <name>",
  "read and serve only Services with this value of the label service.kubernetes.io/service-proxy-name; subscribers that name " +
    "no value get the first (default: Services without the label, and any other value on request)",
  [],
  (text) => text.split(",").forEach(parseProxyName),
);

export function readProxyNames(options: Options): readonly string[] {
  return options.serviceProxyName as readonly string[];
}

/** Options that select the labels and annotations to keep: the fewer are kept, the fewer changes must be sent. */
export const keepOptions: readonly OptionSpec[] = [
  repeatable("--with-service-labels <glob>", "glob of the Service labels to keep"),
  repeatable("--with-service-annotations <glob>", "glob of the Service annotations to keep"),
  repeatable("--with-node-labels <glob>", "glob of the Node labels to keep", defaultNodeLabels),
  repeatable("--with-node-annotations <glob>", "glob of the Node annotations to keep"),
];

/** Returns the values of {@link keepOptions} for the decoders; queries keep all labels by default. */
export function decodeOptionsOf(options: Options): DecodeOptions {
  // A query sends nothing to nodes, so keeping labels costs nothing.
  const orAll = (globs: unknown, standard: readonly string[]): readonly string[] =>
    options.isQuery === true && String(globs) === String(standard) ? ["*"] : (globs as readonly string[]);
  return makeDecodeOptions({
    serviceLabels: orAll(options.withServiceLabels, []),
    serviceAnnotations: options.withServiceAnnotations as readonly string[],
    nodeLabels: orAll(options.withNodeLabels, defaultNodeLabels),
    nodeAnnotations: options.withNodeAnnotations as readonly string[],
  });
}

export const staleOption: OptionSpec = {
  flags: "--stale-after <duration>",
  isExpert: true,
  description: "time without an answer of the server after which the state counts as out of date; at least 1s",
  parse: (text) => {
    const durationMs = parseDurationMs(text);
    // The server is asked three times in this period.
    if (durationMs < 1_000) throw new InvalidArgumentError(`"${text}" is too short: at least 1s`);
    return durationMs;
  },
  default: standardStaleAfterMs,
};
