import { type OptionSpec, repeatable } from "@kpng/process/options.ts";
import {
  type DecodeOptions,
  defaultNodeLabels,
  makeDecodeOptions,
} from "@kpng/watcher/source/decode/decode-options.ts";
import type { Options } from "../context/command-context.ts";

/** Which labels and annotations of Kubernetes objects are kept; all others are forgotten at the edge. */
export const keepOptions: readonly OptionSpec[] = [
  repeatable("--with-service-labels <glob>", "labels of Services to keep"),
  repeatable("--with-service-annotations <glob>", "annotations of Services to keep"),
  repeatable("--with-node-labels <glob>", "labels of Nodes to keep", defaultNodeLabels),
  repeatable("--with-node-annotations <glob>", "annotations of Nodes to keep"),
];

/** The values of `keepOptions` for the decoders. */
export function decodeOptionsOf(options: Options): DecodeOptions {
  return makeDecodeOptions({
    serviceLabels: options.withServiceLabels as readonly string[],
    serviceAnnotations: options.withServiceAnnotations as readonly string[],
    nodeLabels: options.withNodeLabels as readonly string[],
    nodeAnnotations: options.withNodeAnnotations as readonly string[],
  });
}
