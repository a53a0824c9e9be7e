import type { ObjectMap } from "./kernel-objects.ts";

/** The element of the ipset RECORD. Any address will do: no rule matches the set. */
const element = "0.0.0.1";

/** Record after `--hand-over-to-kube-proxy`: virtual servers at addresses belong to kube-proxy. */
export const handedOver = "handed-over";

/**
 * Returns the element that stores the record of a plan (`FamilyPlan.record`) in the kernel. `IpvsRuleSet` compares and
 * writes it like the objects of Services. Pure.
 */
export function recordObjects(record: string): ObjectMap {
  return new Map([["RECORD", new Map([[element, comment(record)]])]]);
}

/** Returns the element with a record as `ipset restore` reads it. */
export function recordElement(record: string): string {
  return `${element} ${comment(record)}`;
}

function comment(record: string): string {
  return `comment "${record}"`;
}

/** Returns the record in the kernel; undefined if there is none. Pure. */
export function recordIn(objects: ObjectMap): string | undefined {
  const value = objects.get("RECORD")?.get(element);
  return /^comment "(.*)"$/.exec(value ?? "")?.[1];
}
