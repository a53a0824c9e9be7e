import { dial } from "@kpng/process/dial.ts";
import { type OptionSpec, parseDurationMs, parseSomeText, repeatable, repeatableSome } from "@kpng/process/options.ts";
import { tlsOptions } from "@kpng/process/tls-files.ts";
import { apiSource } from "@kpng/watcher/source/api/api-source.ts";
import {
  type DecodeOptions,
  defaultNodeLabels,
  makeDecodeOptions,
} from "@kpng/watcher/source/decode/decode-options.ts";
import { fileSource } from "@kpng/watcher/source/file/file-source.ts";
import { replaySource } from "@kpng/watcher/source/replay/replay-source.ts";
import type { ClusterSink, Source } from "@kpng/watcher/source/source.ts";
import { InvalidArgumentError } from "commander";
import { type CommandContext, readApiClientTls } from "./context.ts";

/** A command that says where the cluster's objects come from: `kpng NAME to-…`. */
export interface SourceCommand {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** True if the objects come from a server, which may be away. Default false. */
  readonly asksServer?: boolean | undefined;
  make(options: Readonly<Record<string, unknown>>, sink: ClusterSink, context: CommandContext): Source;
}

/** Which labels and annotations of Kubernetes objects are kept; all others are forgotten at the edge. */
export const keepOptions: readonly OptionSpec[] = [
  repeatable("--with-service-labels <glob>", "labels of Services to keep"),
  repeatable("--with-service-annotations <glob>", "annotations of Services to keep"),
  repeatable("--with-node-labels <glob>", "labels of Nodes to keep", defaultNodeLabels),
  repeatable("--with-node-annotations <glob>", "annotations of Nodes to keep"),
];

/** The values of `keepOptions` for the decoders. */
export function decodeOptionsOf(options: Readonly<Record<string, unknown>>): DecodeOptions {
  return makeDecodeOptions({
    serviceLabels: options.withServiceLabels as readonly string[],
    serviceAnnotations: options.withServiceAnnotations as readonly string[],
    nodeLabels: options.withNodeLabels as readonly string[],
    nodeAnnotations: options.withNodeAnnotations as readonly string[],
  });
}

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

export const apiCommand: SourceCommand = {
  name: "api",
  description: "serve what another watcher serves (a relay)",
  asksServer: true,
  options: [
    {
      flags: "--api <address>",
      description: "watcher upstream: host:port or unix:///path",
      default: "127.0.0.1:12090",
    },
    ...tlsOptions("api-client-", "the connection to the watcher upstream"),
  ],
  examples: `
Examples:
  # a relay for one zone
  kpng api --api watcher.kube-system:12090 to-api --listen tcp://:12090

  # the cluster state of a running watcher, as a file
  kpng api --api 127.0.0.1:12090 to-file -o state.yaml
`,
  make: (options, sink, context) => {
    const api = String(options.api ?? "");
    const tls = readApiClientTls(options);
    return apiSource({ transport: dial({ api, tls }), sink, ...context });
  },
};

export const replayCommand: SourceCommand = {
  name: "replay",
  description: "serve what kpng record has written, as it happened",
  options: [
    {
      flags: "-i, --input <file>",
      description: "the recording",
      default: "kpng-recording.jsonl.gz",
      parse: parseSomeText,
    },
    {
      flags: "--speed <factor>",
      description: "how many times as fast as it happened; 0 for all at once (default: 1; 0 for get and explain)",
      parse: (text) => {
        const speed = Number(text);
        if (text.trim() !== "" && speed >= 0 && speed <= 1_000_000) return speed;
        throw new InvalidArgumentError("the speed is a number from 0 to 1000000");
      },
    },
    {
      flags: "--until <duration>",
      description: "stop at this time after the recording's beginning (default: at its end)",
      parse: parseDurationMs,
    },
  ],
  examples: `
Examples:
  kpng replay -i problem.jsonl.gz --speed 10 to-api
  kpng replay -i problem.jsonl.gz --until 30s explain --node n1 default/web
`,
  make: (options, sink, context) =>
    replaySource({
      path: options.input as string,
      // A question is about the end of the recording, or what --until says.
      speed: (options.speed as number | undefined) ?? (options.isAsked === true ? 0 : 1),
      untilMs: options.until as number | undefined,
      sink,
      ...context,
    }),
};

export const kubeCommand: SourceCommand = {
  name: "kube",
  description: "serve a cluster by watching its API server",
  asksServer: true,
  options: [
    {
      flags: "--kubeconfig <file>",
      description:
        "how to reach the API server (default: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config)",
    },
    { flags: "--server <url>", description: "URL of the API server, in place of the kubeconfig's" },
    ...keepOptions,
  ],
  examples: `
Examples:
  # in a pod with the ServiceAccount of deploy/kubernetes/rbac.yaml
  kpng kube to-api --listen tcp://:12090

  # with the kubeconfig of an administrator, for a look at what a node is told
  kpng kube --kubeconfig ~/.kube/config to-local to-json --node-name n1 --once

  # the state of a cluster as a file
  kpng kube to-file -o state.yaml
`,
  make: (options, sink, context) => {
    const { kubeconfig, server } = options as Record<string, string | undefined>;
    return {
      name: "source/kube",
      run: async (signal) => {
        // The Kubernetes client takes half a second and 80 MB to load: only who watches an API server pays for it.
        const [{ connectKube }, { kubeSource }] = await Promise.all([
          import("@kpng/watcher/source/kube/client/connect.ts"),
          import("@kpng/watcher/source/kube/kube-source.ts"),
        ]);
        const connection = connectKube({ kubeconfig, server });
        await kubeSource({ connection, sink, decode: decodeOptionsOf(options), ...context }).run(signal);
      },
    };
  },
};

export const sourceCommands: readonly SourceCommand[] = [kubeCommand, fileCommand, apiCommand, replayCommand];
