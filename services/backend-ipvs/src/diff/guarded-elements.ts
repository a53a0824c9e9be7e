import type { Family } from "@kpng/model/address.ts";
import { markServer, type ObjectKind, serverOfElement } from "../render/kernel-objects.ts";
import type { InstalledObjects, ObjectChange } from "./diff-objects.ts";

/** Ipsets by which the rules let packets to a frontend pass to IPVS. */
const passing: readonly ObjectKind[] = ["SERVERS", "POD-MARKS", "NODE-MARKS"];

/**
 * Returns the frontends that begin and end at addresses which our interface has before and after the changes. *Shape:*
 * `10.96.0.1,tcp:80`. O(changes).
 *
 * `makeBatches` puts them into the ipset REFUSED while the other ipsets and IPVS disagree. Otherwise packets would
 * reach the node's own port then: the ipset SERVERS lets them pass from before the virtual server exists until after it
 * is gone, because it is also the record of what is ours. After a run that ended or failed meanwhile, the next sync
 * removes the element: see {@link servedElements}. Separate from `makeBatches`, which knows the tools.
 */
export function guardedElements(
  changes: readonly ObjectChange[],
  installed: InstalledObjects,
): Readonly<Record<"beginning" | "ending", readonly string[]>> {
  const isThere = (kind: ObjectKind, key: string): boolean => installed.get(kind)?.has(key) === true;
  const laterValue = valuesAfter(changes, installed);
  const isLater = (kind: ObjectKind, key: string): boolean => laterValue(kind, key) !== undefined;
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

/**
 * Returns the elements of REFUSED that the changes delete, and whose virtual servers are installed and stay.
 * O(changes).
 *
 * `makeBatches` deletes them first: if a later batch fails in each sync, e.g. for an endpoint of another Service, they
 * would stay refused. All others are deleted last, because packets would reach the node's own port without IPVS.
 */
export function servedElements(
  changes: readonly ObjectChange[],
  installed: InstalledObjects,
  family: Family,
): ReadonlySet<string> {
  const unrefused = changes.filter(({ kind, after }) => kind === "REFUSED" && after === undefined);
  if (unrefused.length === 0) return new Set();
  const laterValue = valuesAfter(changes, installed);
  const serverOf = (kind: ObjectKind, element: string, value: string): string =>
    kind === "SERVERS" ? serverOfElement(element) : markServer(Number(value.replace("skbmark ", "")), family);
  const isServed = (element: string): boolean => {
    const servers = passing.flatMap((kind) => {
      const value = laterValue(kind, element);
      return value === undefined ? [] : [serverOf(kind, element, value)];
    });
    const stays = (server: string): boolean =>
      installed.get("server")?.has(server) === true && laterValue("server", server) !== undefined;
    return servers.length > 0 && servers.every(stays);
  };
  return new Set(unrefused.map(({ key }) => key).filter(isServed));
}

/** Returns a function for the values of objects after the changes; undefined for an object that does not exist then. */
function valuesAfter(
  changes: readonly ObjectChange[],
  installed: InstalledObjects,
): (kind: ObjectKind, key: string) => string | undefined {
  const changed = new Map(changes.map(({ kind, key, after }) => [`${kind} ${key}`, after]));
  return (kind, key) => {
    const name = `${kind} ${key}`;
    return changed.has(name) ? changed.get(name) : installed.get(kind)?.get(key);
  };
}
