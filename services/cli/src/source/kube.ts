import { decodeOptionsOf, keepOptions } from "./keep-options.ts";
import type { SourceCommand } from "./source-command.ts";

/** `kpng kube`. */
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
