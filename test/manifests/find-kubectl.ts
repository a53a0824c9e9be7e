import { delimiter, join } from "node:path";
import { findBinaries, isBuilt } from "../cluster/binaries.ts";
import { isExecutable } from "../cluster/child.ts";

/**
 * Returns the path of kubectl, with which users build and apply kustomizations: from KUBEBUILDER_ASSETS or the cache of
 * test/cluster, otherwise from the PATH, otherwise built; undefined if that is not possible.
 */
export async function findKubectl(): Promise<string | undefined> {
  const assets = process.env.KUBEBUILDER_ASSETS;
  const isAtHand = isBuilt("kubectl") || (assets !== undefined && isExecutable(join(assets, "kubectl")));
  const onPath = (process.env.PATH ?? "").split(delimiter).map((folder) => join(folder, "kubectl"));
  const found = isAtHand ? undefined : onPath.find(isExecutable);
  if (found !== undefined) return found;
  const binaries = await findBinaries(["kubectl"]);
  return binaries.kind === "found" ? binaries.paths.kubectl : undefined;
}
