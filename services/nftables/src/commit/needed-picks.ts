import { type ElementValue, readNumber } from "../layout/element-keys.ts";
import { unpackSet } from "../layout/packed-set.ts";
import { dataOf, type SharedSet } from "../layout/set-names.ts";
import { pickChain } from "../render/skeleton.ts";

const frontendMaps: ReadonlySet<SharedSet> = new Set(["frontends", "local_frontends", "nodeports", "local_nodeports"]);

/**
 * Returns the names of the pick chains that new elements need, each once. A pick chain chooses at random one of a
 * certain number of endpoints: `pick_3` one of three. All Services with that number of endpoints share the chain.
 *
 * `planInstall` and `planChange` call it, because the chains must exist before elements lead to them. The names of pick
 * chains are interpreted in this file alone.
 */
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

/** Returns the number of endpoints among which the pick chain with this name chooses; undefined for other chains. */
export function countOfPick(name: string): number | undefined {
  const count = /^(?:sticky_)?pick_(\d+)$/.exec(name)?.[1];
  return count === undefined ? undefined : Number(count);
}
