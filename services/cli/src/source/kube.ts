import { type OptionSpec, textOption } from "@kpng/process/options.ts";
import type { KubeConnection } from "@kpng/source/kube/connection.ts";
import type { Options } from "../context/command-context.ts";
import { decodeOptionsOf, keepOptions, type SourceCommand, staleOption } from "./source-command.ts";

/** Options that name the API server and the credentials for it. */
export const kubeOptions: readonly OptionSpec[] = [
  {
    flags: "--kubeconfig <file>",
    description: "kubeconfig file (default: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config)",
  },
  textOption(
    "--server <url>",
    "URL of the API server, in place of the one in --kubeconfig; without that file, no kubeconfig is read",
  ),
];

/** `kpng kube`: watches the API server. This is the usual source of a watcher in a cluster. */
export const sourceCommand: SourceCommand = {
  name: "kube",
  asksServer: true,
  options: [...kubeOptions, staleOption, ...keepOptions],
  examples: `
Examples:
  # in a pod with the ServiceAccount of deploy/kubernetes/watcher/rbac.yaml
  kpng kube to-api --listen tcp://:12090 --listen-tls-key tls.key --listen-tls-crt tls.crt --listen-tls-ca ca.crt

  # print the view of node n1, with the kubeconfig of an administrator
  kpng kube --kubeconfig ~/.kube/config to-local to-json --node-name n1 --once

  # the state of the cluster, in a file
  kpng kube to-file -o state.yaml
`,
  connect,
  make: (options, sink, context) => {
    return {
      name: "source/kube",
      run: async (signal) => {
        const [connection, { kubeSource }] = await Promise.all([
          connect(options),
          import("@kpng/source/kube/kube-source.ts"),
        ]);
        const staleAfterMs = options.staleAfter as number;
        const decode = decodeOptionsOf(options);
        await kubeSource({ connection, sink, decode, staleAfterMs, ...context }).run(signal);
      },
    };
  },
};

/** Connects to the API server according to {@link kubeOptions}. */
export async function connect(options: Options): Promise<KubeConnection> {
  const { kubeconfig, server } = options as Record<string, string | undefined>;
  // Load the Kubernetes client only on demand, because it takes half a second and 80 MB.
  const { connectKube } = await import("@kpng/source/kube/connect.ts");
  return connectKube({ kubeconfig, server });
}
