import type { LogFields } from "@kpng/process/log.ts";
import { repeatableNonEmpty } from "@kpng/process/options.ts";
import { fileSource } from "@kpng/source/file/file-source.ts";
import { decodeOptionsOf, keepOptions, type SourceCommand } from "./source-command.ts";

/** `kpng file`: reads Kubernetes manifests, or state files from `kpng SOURCE to-file`. */
export const sourceCommand: SourceCommand = {
  name: "file",
  options: [
    repeatableNonEmpty("-i, --input <path>", "file or folder to read, or - for standard input", [
      "globalv1-state.yaml",
    ]),
    ...keepOptions,
  ],
  examples: `
Examples:
  # a real cluster, from a dump
  kubectl get services,endpointslices,nodes -A -o yaml > state.yaml
  kpng file -i state.yaml to-api

  # all manifests of a folder, with a backend in the same process
  kpng file -i manifests/ to-local to-json --node-name n1
`,
  make: (options, sink, context) =>
    fileSource({
      inputs: options.input as readonly string[],
      sink,
      decode: decodeOptionsOf(options),
      // A query may show the valid objects of an invalid input, because it changes nothing on a node.
      skipsBad: options.isQuery === true,
      ...(options.isQuery === true ? { warn: printWarning } : {}),
      ...context,
    }),
};

/** Prints a warning as plain text, because a query does not log. */
function printWarning(message: string, fields: LogFields = {}): void {
  // Strings from a file may contain control characters.
  const text = `${message}: ${Object.values(fields).join(": ")}`.replaceAll(/\p{Cc}+/gu, " ");
  process.stderr.write(`warning: ${text}\n`);
}
