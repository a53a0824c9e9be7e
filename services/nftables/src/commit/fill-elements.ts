import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import type { ServiceElements } from "../elements/service-elements.ts";
import { numberBytes, recordKey } from "../layout/element-keys.ts";
import { type ActualElements, idsOfSlots, slotsById } from "../read/read-table.ts";
import { countOfPick } from "./needed-picks.ts";

/** After this many Services the event loop gets a turn, so that health answers during a full sync. */
const servicesPerTurn = 200;

/**
 * Fills empty `elements` with all Services of a plan. `NftTable` calls it in a full sync, and `PrintedRuleSet` for
 * `--dry-run` and `--diff`; a partial sync puts single Services itself.
 *
 * The ids that endpoint sets have in the kernel are kept, so that few elements are rewritten: all of them are taken
 * over before any Service gets a new id, and new ids are ones that no set in the kernel has. `actual` are the elements in the kernel.
 */
export async function fillElements(elements: ServiceElements, plan: FamilyPlan, actual: ActualElements): Promise<void> {
  const slots = { slots: slotsById(actual.slots), sticky_slots: slotsById(actual.sticky_slots) };
  const services: ServicePlan[] = [];
  const hasSets = actual.slots.size + actual.sticky_slots.size > 0;
  let count = 0;
  for (const key of plan.keys()) {
    const service = plan.service(key);
    if (service === undefined) continue;
    if (hasSets) {
      elements.adopt(service, (set, element) => actual[set].get(element), slots);
      services.push(service);
      // Without ids to keep, plans need not stay in memory until all are known.
    } else elements.put(key, service);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
  if (hasSets) elements.avoidIds(idsOfSlots(actual.slots).union(idsOfSlots(actual.sticky_slots)));
  for (const service of services) {
    elements.put(service.key, service);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
  elements.table.put("picks", numberBytes(0), "sticky");
}

/**
 * Puts all Services of a plan into `elements`, which have the Services of an earlier plan, and the record. `NftTable`
 * calls it in a full sync if the table is known; {@link fillElements} begins with empty elements.
 */
export async function putAll(elements: ServiceElements, plan: FamilyPlan): Promise<void> {
  const keys = new Set(plan.keys());
  let count = 0;
  for (const key of new Set([...elements.services, ...keys])) {
    elements.put(key, keys.has(key) ? plan.service(key) : undefined);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
  putRecord(elements, plan);
}

/**
 * Puts the element that leads from a number of endpoints to the pick chain with this name. Other chains, and those for
 * client affinity, have no such element. `planInstall` and `planChange` call it for installed and for needed chains.
 */
export function putPick({ table }: ServiceElements, name: string): void {
  const count = countOfPick(name);
  if (count !== undefined && !name.startsWith("sticky_")) table.put("picks", numberBytes(count), name);
}

/**
 * Puts the element that stores the record of a plan. It is committed with the elements of the Services, in the same
 * transaction or, in a first load, after them; `NftTable` calls it in each sync. `readInstalledState` reads it after
 * a restart.
 */
export function putRecord({ table }: ServiceElements, { record }: FamilyPlan): void {
  if (record === undefined) table.delete("record", recordKey);
  else table.put("record", recordKey, record);
}
