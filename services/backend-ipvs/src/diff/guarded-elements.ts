import type { ObjectKind } from "../render/kernel-objects.ts";
import type { InstalledObjects, ObjectChange } from "./diff-objects.ts";

/** Ipsets by which the rules let packets to a frontend pass to IPVS. */
const passing: readonly ObjectKind[] = ["SERVERS", "POD-MARKS", "NODE-MARKS"];

/**
 * Returns the frontends that begin and end at addresses which our interface has before and after the changes. *Shape:*
 * `10.96.0.1,tcp:80`. O(changes).
 *
 * `makeBatches` puts them into the ipset REFUSED while the other ipsets and IPVS disagree. Otherwise packets would
 * reach the node's own port then: the ipset SERVERS lets them pass from before the virtual server exists until after it
 * is gone, because it is also the record of what is ours. After a run that ended meanwhile, the next sync removes the
 * element. Separate from `makeBatches`, which knows the tools.
 */
export function guardedElements(
  changes: readonly ObjectChange[],
  installed: InstalledObjects,
): Readonly<Record<"beginning" | "ending", readonly string[]>> {
  const changed = new Map(changes.map(({ kind, key, after }) => [`${kind} ${key}`, after]));
  const isThere = (kind: ObjectKind, key: string): boolean => installed.get(kind)?.has(key) === true;
  const isLater = (kind: ObjectKind, key: string): boolean => {
    const name = `${kind} ${key}`;
    return changed.has(name) ? changed.get(name) !== undefined : isThere(kind, key);
  };
  const elements = new Set(changes.flatMap(({ kind, key }) => (passing.includes(kind) ? [key] : [])));
  const guarded = [...elements].filter((element) => {
    const address = element.slice(0, element.indexOf(","));
    const stays = isThere("address", address) && isLater("address", address);
    return stays && !isThere("REFUSED", element) && !isLater("REFUSED", element);
  });
  const passesNow = (element: string): boolean => passing.some((kind) => isThere(kind, element));
  const passesLater = (element: string): boolean => passing.some((kind) => isLater(kind, element));
  return {
    beginning: guarded.filter((element) => !passesNow(element) && passesLater(element)),
    ending: guarded.filter((element) => passesNow(element) && !passesLater(element)),
  };
}
