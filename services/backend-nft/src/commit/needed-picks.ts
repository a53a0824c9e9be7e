import { type ElementValue, readNumber } from "../layout/element-keys.ts";
import { unpackSet } from "../layout/packed-set.ts";
import { dataOf, type SharedSet } from "../layout/set-names.ts";
import { pickChain } from "../render/skeleton.ts";

const frontendMaps: ReadonlySet<SharedSet> = new Set(["frontends", "local_frontends", "nodeports", "local_nodeports"]);

/** Returns the names of the chains that pick among the numbers of endpoints in new elements, each once. */
export function neededPicks(values: Iterable<readonly [set: SharedSet, value: ElementValue]>): readonly string[] {
  const needed = new Set<string>();
  for (const [set, value] of values) {
    if (frontendMaps.has(set)) {
      const { count } = unpackSet(readNumber(value));
      if (count > 0) needed.add(pickChain(count));
    } else if (dataOf[set] === "jump") needed.add(value);
  }
  return [...needed];
}

/** Returns the number of endpoints that a chain with this name picks one of; undefined for other chains. */
export function countOfPick(name: string): number | undefined {
  const count = /^(?:sticky_)?pick_(\d+)$/.exec(name)?.[1];
  return count === undefined ? undefined : Number(count);
}
