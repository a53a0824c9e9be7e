import type { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import type { RunTool } from "../read/run-tool.ts";

/**
 * Destroys ipsets in one run of ipset. It ends at the first one that it refuses, e.g. because a rule of another program
 * uses it; then those that are left are destroyed one by one, and `failures` has what ipset refuses again.
 *
 * `removeObjects` and `removeKubeProxy` call it after their rules are gone.
 */
export async function destroySets(runTool: RunTool, failures: CleanupFailures, sets: readonly string[]): Promise<void> {
  const destroy = (names: readonly string[]): Promise<void> =>
    runTool.write(
      ["ipset", "restore"],
      names.map((name) => `destroy ${name}`),
    );
  try {
    if (sets.length > 0) await destroy(sets);
  } catch {
    // Ipsets before the refused one are gone.
    const left = await failures.attempt(() => runTool.read(["ipset", "list", "-name"]));
    const isLeft = new Set(left?.split("\n") ?? sets);
    for (const set of sets) if (isLeft.has(set)) await failures.attempt(() => destroy([set]));
  }
}
