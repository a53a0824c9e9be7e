import { finishing, type ObjectKind } from "../render/kernel-objects.ts";
import { companionsOf, type Draining } from "./draining.ts";
import type { ObjectId, ServiceObjects } from "./service-objects.ts";

/** Objects in the kernel, as they were read or written last. */
export type InstalledObjects = ReadonlyMap<ObjectKind, Map<string, string>>;

/** A difference between an installed and a desired object; undefined where there is none. */
export interface ObjectChange {
  readonly kind: ObjectKind;
  readonly key: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/**
 * Returns the changes that lead from the installed objects to those that Services need. Objects of real servers that
 * drain stay. `ids` are the objects to compare.
 *
 * `IpvsRuleSet` calls it in each sync and repair. Separate from `makeBatches`, which turns the changes into commands.
 * Pure except that it adds real servers to `draining`; O(ids + draining).
 */
export function diffObjects(
  ids: readonly ObjectId[],
  desired: ServiceObjects,
  installed: InstalledObjects,
  draining: Draining,
  nowMs: number,
): readonly ObjectChange[] {
  const changes: ObjectChange[] = [];
  const compare = (kind: ObjectKind, key: string, after: string | undefined): void => {
    const before = installed.get(kind)?.get(key);
    if (before !== after) changes.push({ kind, key, before, after });
  };
  for (const [kind, key] of ids) {
    if (kind !== "real") continue;
    const isInstalled = installed.get(kind)?.has(key) === true;
    const desiredValue = desired.valueOf(kind, key);
    const wanted = desiredValue === finishing && !isInstalled ? undefined : desiredValue;
    if (wanted !== undefined) draining.forget(key);
    const isKept = wanted === undefined && isInstalled && draining.keeps(key, nowMs);
    compare(kind, key, isKept ? finishing : wanted);
  }
  const kept = new Set<string>();
  for (const server of draining.servers) {
    kept.add(`server ${server}`);
    for (const [kind, key] of companionsOf(server)) kept.add(`${kind} ${key}`);
  }
  for (const [kind, key] of ids) {
    if (kind === "real") continue;
    const wanted = desired.valueOf(kind, key);
    const isKept = wanted === undefined && kept.has(`${kind} ${key}`);
    compare(kind, key, isKept ? installed.get(kind)?.get(key) : wanted);
  }
  return changes;
}

/** Returns the identifiers of all desired and installed objects, each once. */
export function allIds(
  kinds: readonly ObjectKind[],
  desired: ServiceObjects,
  installed: InstalledObjects,
): readonly ObjectId[] {
  return kinds.flatMap((kind) => {
    const keys = new Set(installed.get(kind)?.keys());
    for (const [key] of desired.ofKind(kind)) keys.add(key);
    return [...keys].map((key) => [kind, key] as const);
  });
}
