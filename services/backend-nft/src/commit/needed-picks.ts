import type { SharedSetChange } from "../elements/element-table.ts";
import { unpackSet } from "../layout/packed-set.ts";
import { pickChain } from "../render/skeleton.ts";

const frontendMaps: ReadonlySet<string> = new Set(["frontends", "local_frontends", "nodeports", "local_nodeports"]);

/** Returns the names of the chains that pick among the numbers of endpoints in changed elements, each once. */
export function neededPicks(changes: readonly SharedSetChange[]): readonly string[] {
  const needed = new Set<string>();
  for (const { kind, set, elements } of changes) {
    if (kind === "delete") continue;
    for (const { data } of elements) {
      if (data?.kind === "jump") needed.add(data.chain);
      else if (data?.kind === "value" && frontendMaps.has(set)) {
        const { count } = unpackSet(Buffer.from(data.bytes).readUInt32LE(0));
        if (count > 0) needed.add(pickChain(count));
      }
    }
  }
  return [...needed];
}

/** Returns the number of endpoints that a chain with this name picks one of; undefined for other chains. */
export function countOfPick(name: string): number | undefined {
  const count = /^(?:sticky_)?pick_(\d+)$/.exec(name)?.[1];
  return count === undefined ? undefined : Number(count);
}
