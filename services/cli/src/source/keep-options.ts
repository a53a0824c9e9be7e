import { type OptionSpec, repeatable } from "@kpng/process/options.ts";
import {
  type DecodeOptions,
  defaultNodeLabels,
  makeDecodeOptions,
} from "@kpng/watcher/source/decode/decode-options.ts";
import type { Options } from "../context/command-context.ts";

/**
 * Options that select the labels and annotations to keep; a source drops all others when it decodes an object. Fewer
 * kept labels mean fewer changes to send. The sources `kube` and `file` share these options, hence a file of their own.
 */
export const keepOptions: readonly OptionSpec[] = [
  repeatable("--with-service-labels <glob>", "glob of the Service labels to keep"),
  repeatable("--with-service-annotations <glob>", "glob of the Service annotations to keep"),
  repeatable("--with-node-labels <glob>", "glob of the Node labels to keep", defaultNodeLabels),
  repeatable("--with-node-annotations <glob>", "glob of the Node annotations to keep"),
];

/**
 * The values of {@link keepOptions}, for the decoders. `kpng SOURCE get` and its siblings keep all labels by default.
 * Separate from `makeDecodeOptions`, which knows nothing about a command line.
 */
export function decodeOptionsOf(options: Options): DecodeOptions {
  // A query sends nothing to nodes, so labels cost nothing.
  const orAll = (globs: unknown, standard: readonly string[]): readonly string[] =>
    options.isQuery === true && String(globs) === String(standard) ? ["*"] : (globs as readonly string[]);
  return makeDecodeOptions({
    serviceLabels: orAll(options.withServiceLabels, []),
    serviceAnnotations: options.withServiceAnnotations as readonly string[],
    nodeLabels: orAll(options.withNodeLabels, defaultNodeLabels),
    nodeAnnotations: options.withNodeAnnotations as readonly string[],
  });
}
