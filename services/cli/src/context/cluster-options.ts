import { basename } from "node:path";
import { type OptionSpec, parseNonEmptyText } from "@kpng/process/options.ts";
import type { Options } from "./command-context.ts";

/** Options that name a cluster to query instead of an address. */
export const clusterOptions: readonly OptionSpec[] = [
  {
    flags: "--kubeconfig <file>",
    description: "ask kpng in this kubeconfig's cluster, through the API server (default: $KUBECONFIG)",
    parse: parseNonEmptyText,
  },
  {
    flags: "--context <name>",
    description: "context of the kubeconfig, or of ~/.kube/config if there is no other",
    parse: parseNonEmptyText,
  },
  {
    flags: "--kpng-namespace <name>",
    description: "namespace of kpng in the cluster",
    default: "kube-system",
    parse: parseNonEmptyText,
  },
  {
    flags: "--pod <name>",
    description: "ask only this pod of kpng in the cluster (default: all watchers)",
    parse: parseNonEmptyText,
  },
];

/** True if the options or the environment name a cluster, or if this is `kubectl kpng`. */
export function namesCluster({ kubeconfig, context }: Options): boolean {
  const isPlugin = [process.argv0, process.argv[1] ?? ""].some((path) => basename(path) === "kubectl-kpng");
  return isPlugin || kubeconfig !== undefined || context !== undefined || (process.env.KUBECONFIG ?? "") !== "";
}
