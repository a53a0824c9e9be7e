import { repeatableSome } from "@kpng/process/options.ts";
import { fileSource } from "@kpng/watcher/source/file/file-source.ts";
import { decodeOptionsOf, keepOptions } from "./keep-options.ts";
import type { SourceCommand } from "./source-command.ts";

/** `kpng file`. */
export const fileCommand: SourceCommand = {
  name: "file",
  description: "serve a cluster from files: Kubernetes manifests, or state files of KPNG",
  options: [
    repeatableSome("-i, --input <path>", "file or folder, - for standard input", ["globalv1-state.yaml"]),
    ...keepOptions,
  ],
  examples: `
Examples:
  # a real cluster, offline
  kubectl get services,endpointslices,nodes -A -o yaml > state.yaml
  kpng file -i state.yaml to-api

  # all manifests of a folder, straight to a backend on this node
  kpng file -i manifests/ to-local to-json --node-name n1
`,
  make: (options, sink, context) =>
    fileSource({ inputs: options.input as readonly string[], sink, decode: decodeOptionsOf(options), ...context }),
};
